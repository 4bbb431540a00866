-- The active version of a pool's rule.
SELECT slot_pool.name AS pool, slot_config.*
FROM penstock.slot_pool JOIN penstock.slot_config USING (pool_id)
WHERE slot_pool.name = $1 AND is_active;
