-- Runs of taken cells and the first free instant after each, under the table name of the rate
-- limiter that the slots replace.
-- The joined sequence refuses FOR UPDATE, see migration 0002.
CREATE OR REPLACE VIEW penstock.rl_wndw_frontier_trk AS
SELECT slot_pool.name AS wndw_config_nm, run.first_at AS req_ts,
    penstock.cell_at(pool_id, last_cell + 1) AS wndw_end_ts,
    (
        SELECT created_at
        FROM penstock.slot
        WHERE slot.pool_id = slot_run.pool_id AND window_at > run.first_at - interval '24 hours'
            AND window_at + position * interval '1 microsecond' >= run.first_at
        ORDER BY window_at, position
        LIMIT 1
    ) AS creat_ts
FROM penstock.slot_run
JOIN penstock.slot_pool USING (pool_id)
CROSS JOIN LATERAL (SELECT penstock.cell_at(pool_id, first_cell) AS first_at) AS run
CROSS JOIN penstock.use_penstock_assign_slots;
