-- The slot of one event.
SELECT slot_pool.name AS pool, slot.*
FROM penstock.slot JOIN penstock.slot_pool USING (pool_id)
WHERE event_id = $1;
