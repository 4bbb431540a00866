-- Create a new version of a pool's rule, or a pool with its first one; returns the version's id. It
-- applies to all callers once this commits: from the present window on, or, where the window's size
-- changes, from the next edge of the new windows. Slots stay where they are, and count. NULL
-- periods mean always open; without is_strict, it is as in the version before.
CREATE OR REPLACE FUNCTION penstock.set_slot_config(
    pool text, max_per_window integer, window_size interval, spacing text, horizon interval,
    calendar jsonb, cut_off_policy text,
    starts timestamptz[], ends timestamptz[], days date[], cut_offs timestamptz[],
    who text, at timestamptz DEFAULT NULL, is_strict boolean DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    this_pool integer;
    now_at timestamptz;
    window_us bigint := (extract(epoch FROM set_slot_config.window_size) * 1000000)::bigint;
    previous_version integer;
    present_window_us bigint;
    edge bigint;
    edge_at timestamptz;
    made integer;
    strict_now boolean;
    last_at timestamptz;
BEGIN
    INSERT INTO penstock.slot_pool (name) VALUES (set_slot_config.pool) ON CONFLICT DO NOTHING;
    SELECT pool_id, coalesce(set_slot_config.is_strict, slot_pool.is_strict)
    INTO this_pool, strict_now
    FROM penstock.slot_pool
    WHERE name = set_slot_config.pool
    FOR UPDATE;
    now_at := coalesce(set_slot_config.at, clock_timestamp());

    UPDATE penstock.slot_config SET is_active = false
    WHERE pool_id = this_pool AND is_active
    RETURNING version INTO previous_version;
    -- Compared with the windows that apply now, not with a version that is not effective yet.
    SELECT s.window_us INTO present_window_us FROM penstock.slot_stretch AS s
    WHERE s.pool_id = this_pool AND s.starts_at <= now_at
    ORDER BY s.starts_at DESC
    LIMIT 1;
    edge := penstock.to_micros(now_at) / window_us * window_us;
    IF present_window_us <> window_us THEN
        edge := edge + window_us;
    END IF;
    edge_at := penstock.from_micros(edge);

    INSERT INTO penstock.slot_config (
        pool_id, version, max_per_window, window_size, spacing, horizon, calendar, cut_off_policy,
        is_strict, effective_at, created_at, created_by, is_active)
    VALUES (
        this_pool, coalesce(previous_version, 0) + 1, set_slot_config.max_per_window,
        set_slot_config.window_size, set_slot_config.spacing, set_slot_config.horizon,
        set_slot_config.calendar, set_slot_config.cut_off_policy,
        strict_now, edge_at, now_at, set_slot_config.who, true)
    RETURNING config_id INTO made;

    DELETE FROM penstock.slot_run
    WHERE pool_id = this_pool AND first_cell >= penstock.first_cell_at(this_pool, edge_at);
    UPDATE penstock.slot_run SET last_cell = penstock.first_cell_at(this_pool, edge_at) - 1
    WHERE pool_id = this_pool AND last_cell >= penstock.first_cell_at(this_pool, edge_at);
    DELETE FROM penstock.slot_stretch WHERE pool_id = this_pool AND starts_at >= edge_at;
    DELETE FROM penstock.slot_stretch
    WHERE pool_id = this_pool AND ends_at > edge_at
        AND penstock.cells_before(edge, window_us, capacity) = base;
    UPDATE penstock.slot_stretch
    SET ends_at = edge_at,
        last_cell = first_cell - base + penstock.cells_before(edge, window_us, capacity) - 1
    WHERE pool_id = this_pool AND ends_at > edge_at;
    PERFORM penstock.add_stretches(
        made,
        array_agg(greatest(p.starts_at, edge_at)), array_agg(p.ends_at),
        array_agg(p.day), array_agg(p.cut_off_at))
    FROM unnest(
        coalesce(set_slot_config.starts, ARRAY[edge_at]),
        coalesce(set_slot_config.ends, ARRAY[timestamptz '2200-01-01Z']),
        set_slot_config.days, set_slot_config.cut_offs
    ) AS p (starts_at, ends_at, day, cut_off_at)
    WHERE p.ends_at > edge_at;
    IF NOT EXISTS (SELECT FROM penstock.slot_stretch WHERE config_id = made) THEN
        RAISE EXCEPTION 'the calendar leaves no place for a slot' USING ERRCODE = 'PS400';
    END IF;

    SELECT max(window_at) + interval '24 hours' INTO last_at FROM penstock.slot
    WHERE pool_id = this_pool;
    UPDATE penstock.slot_pool
    SET horizon = set_slot_config.horizon,
        is_strict = strict_now,
        mixed_until = greatest(mixed_until, last_at)
    WHERE pool_id = this_pool;
    IF last_at > edge_at THEN
        PERFORM penstock.mark_cells(this_pool, edge_at, timestamptz '2200-01-01Z');
        -- A window that the edge cuts has lost slots or cells after it.
        PERFORM penstock.mark_window(this_pool, edge_at - interval '1 microsecond');
    END IF;
    RETURN made;
END $$;
