-- Append opening periods to a pool; the arrays are parallel. A period that is too short has no
-- cells and is left out.
CREATE OR REPLACE FUNCTION penstock.add_stretches(
    for_config integer, starts timestamptz[], ends timestamptz[], days date[], cut_offs timestamptz[]
) RETURNS void
LANGUAGE sql AS $$
    WITH config AS (
        SELECT config_id, pool_id, max_per_window AS capacity, spacing, cut_off_policy,
            (extract(epoch FROM window_size) * 1000000)::bigint AS window_us
        FROM penstock.slot_config
        WHERE config_id = for_config
    ), period AS (
        SELECT config.*, p.*,
            penstock.cells_before(penstock.to_micros(p.starts_at), window_us, capacity) AS base,
            penstock.cells_before(penstock.to_micros(p.ends_at), window_us, capacity) AS next_base
        FROM config, unnest(starts, ends, days, cut_offs) AS p (starts_at, ends_at, day, cut_off_at)
    )
    INSERT INTO penstock.slot_stretch (
        pool_id, first_cell, last_cell, base, starts_at, ends_at, window_us, capacity, config_id,
        spacing, cut_off_policy, day, cut_off_at)
    SELECT pool_id, before - (next_base - base), before - 1, base, starts_at, ends_at, window_us,
        capacity, config_id, spacing, cut_off_policy, day, cut_off_at
    FROM (
        SELECT period.*,
            (SELECT coalesce(max(last_cell) + 1, 0) FROM penstock.slot_stretch
                WHERE pool_id = period.pool_id)
            + sum(next_base - base) OVER (ORDER BY starts_at) AS before
        FROM period
        WHERE next_base > base
    ) AS numbered
$$;
