-- Versions of pools' rules, under the table name of the rate limiter that the slots replace.
-- The joined sequence refuses FOR UPDATE, see migration 0002.
CREATE OR REPLACE VIEW penstock.rl_event_wndw_config AS
SELECT config_id::text AS rl_wndw_config_id, slot_pool.name AS wndw_config_nm,
    max_per_window AS wndw_max_event_ct,
    'PT' || trim_scale(extract(epoch FROM window_size)) || 'S' AS wndw_size_iso_dur_tx,
    effective_at AS config_eff_strt_dt, is_active::integer AS act_in, created_at AS creat_ts
FROM penstock.slot_config JOIN penstock.slot_pool USING (pool_id)
CROSS JOIN penstock.use_penstock_assign_slots;
