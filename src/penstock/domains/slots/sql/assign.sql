-- Give events their slots; the function is the same for callers of any language.
SELECT given.outcome, slot_pool.name AS pool, given.requested_at, given.scheduled_at,
    given.window_at, given.position, given.config_id, given.created_at
FROM penstock.assign_slots($1, $2::text[], $3::timestamptz[], $4) AS given
LEFT JOIN penstock.slot_pool USING (pool_id)
ORDER BY given.index;
