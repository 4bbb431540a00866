-- Versions of rules: all of one pool, newest first, or the active ones of all pools.
SELECT slot_pool.name AS pool, slot_config.*
FROM penstock.slot_pool JOIN penstock.slot_config USING (pool_id)
WHERE CASE WHEN $1::text IS NULL THEN is_active ELSE slot_pool.name = $1 END
ORDER BY slot_pool.name, version DESC;
