-- Slots, under the table name of the rate limiter that the slots replace.
-- The joined sequence refuses FOR UPDATE, see migration 0002.
CREATE OR REPLACE VIEW penstock.rl_event_slot_dtl AS
SELECT pool_id || '-' || penstock.to_micros(window_at) + position AS wndw_slot_id, event_id,
    requested_at AS req_ts, window_at AS wndw_strt_ts, scheduled_at AS computed_sched_ts,
    config_id::text AS rl_wndw_config_id, created_at AS creat_ts
FROM penstock.slot CROSS JOIN penstock.use_penstock_assign_slots;
