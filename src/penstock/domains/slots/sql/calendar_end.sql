-- The active version of a pool with a calendar, and the end of its known opening periods.
SELECT config_id, calendar, max(ends_at) AS known_until
FROM penstock.slot_pool
JOIN penstock.slot_config USING (pool_id)
JOIN penstock.slot_stretch USING (pool_id, config_id)
WHERE name = $1 AND is_active AND calendar IS NOT NULL
GROUP BY config_id, calendar;
