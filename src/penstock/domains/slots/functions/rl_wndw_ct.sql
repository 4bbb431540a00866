-- Slots per window, under the table name of the rate limiter that the slots replace. Counted when
-- read: nothing is provisioned, and nothing can be edited by hand.
-- The joined sequence refuses FOR UPDATE, see migration 0002.
CREATE OR REPLACE VIEW penstock.rl_wndw_ct AS
WITH counted AS (
    SELECT slot_pool.name AS wndw_config_nm, window_at AS wndw_strt_ts, count(*) AS slot_ct,
        min(created_at) AS creat_ts
    FROM penstock.slot JOIN penstock.slot_pool USING (pool_id)
    GROUP BY slot_pool.name, window_at
)
SELECT counted.*
FROM counted CROSS JOIN penstock.use_penstock_assign_slots;
