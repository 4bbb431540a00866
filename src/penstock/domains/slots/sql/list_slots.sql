-- A page of a pool's slots by window and position, in [$2, $3), after the cursor ($5, $6).
SELECT slot_pool.name AS pool, slot.*
FROM penstock.slot JOIN penstock.slot_pool USING (pool_id)
WHERE slot.pool_id = (SELECT pool_id FROM penstock.slot_pool WHERE name = $1)
    AND (window_at, position) > ($5::timestamptz, $6::bigint)
    -- Bounds on the indexed window first; a window is at most a day.
    AND window_at > $2::timestamptz - interval '24 hours'
    AND window_at < $3::timestamptz
    AND scheduled_at >= $2 AND scheduled_at < $3
    AND created_at >= $4::timestamptz
ORDER BY slot.pool_id, window_at, position
LIMIT $7;
