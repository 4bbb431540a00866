-- The same under the names of the rate limiter that this replaces, for people who know them.

CREATE VIEW penstock.rl_event_wndw_config AS
SELECT config_id::text AS rl_wndw_config_id, slot_pool.name AS wndw_config_nm,
    max_per_window AS wndw_max_event_ct,
    'PT' || trim_scale(extract(epoch FROM window_size)) || 'S' AS wndw_size_iso_dur_tx,
    effective_at AS config_eff_strt_dt, is_active::integer AS act_in, created_at AS creat_ts
FROM penstock.slot_config JOIN penstock.slot_pool USING (pool_id);

-- Counted when read: nothing has to be provisioned, and nothing can be edited by hand.
CREATE VIEW penstock.rl_wndw_ct AS
SELECT slot_pool.name AS wndw_config_nm, window_at AS wndw_strt_ts, count(*) AS slot_ct,
    min(created_at) AS creat_ts
FROM penstock.slot JOIN penstock.slot_pool USING (pool_id)
GROUP BY slot_pool.name, window_at;

CREATE VIEW penstock.rl_event_slot_dtl AS
SELECT pool_id || '-' || penstock.to_micros(window_at) + position AS wndw_slot_id, event_id,
    requested_at AS req_ts, window_at AS wndw_strt_ts, scheduled_at AS computed_sched_ts,
    config_id::text AS rl_wndw_config_id, created_at AS creat_ts
FROM penstock.slot;

-- Each booked stretch and where it ends, which is where the next slot of whoever asks for it lies.
CREATE VIEW penstock.rl_wndw_frontier_trk AS
SELECT slot_pool.name AS wndw_config_nm,
    penstock.cell_at(pool_id, first_cell) AS req_ts,
    penstock.cell_at(pool_id, last_cell + 1) AS wndw_end_ts,
    first_slot.created_at AS creat_ts
FROM penstock.slot_run
JOIN penstock.slot_pool USING (pool_id)
LEFT JOIN LATERAL (
    SELECT created_at
    FROM penstock.slot
    CROSS JOIN LATERAL (SELECT penstock.cell_at(slot_run.pool_id, slot_run.first_cell) AS at) AS cell
    WHERE slot.pool_id = slot_run.pool_id AND window_at > cell.at - interval '24 hours'
        AND window_at + position * interval '1 microsecond' >= cell.at
    ORDER BY window_at, position
    LIMIT 1
) AS first_slot ON true;
