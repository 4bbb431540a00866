-- How cells are reckoned, taken and given back. All arithmetic is in whole microseconds since 1970, and
-- in hours: a day has 23 of them now and then, in the time zone of a session.

-- STABLE, as extract is: only so it is inlined into the statements that use it.
CREATE FUNCTION penstock.to_micros(at timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM at) * 1000000)::bigint;

CREATE FUNCTION penstock.from_micros(micros bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN timestamptz 'epoch' + micros * interval '1 microsecond';

-- How many cells a rule has before an instant, counted from 1970: the number of the first one at or
-- after it. Cell p of a window begins ceil(p * window / capacity) microseconds into it.
CREATE FUNCTION penstock.cells_before(micros bigint, window_us bigint, capacity integer)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (micros - 1) / window_us * capacity + (micros - 1) % window_us * capacity / window_us + 1;

-- The first cell of a pool at or after an instant; NULL where the pool's calendar has ended.
CREATE FUNCTION penstock.first_cell_at(in_pool integer, at timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN at <= starts_at THEN first_cell
        ELSE first_cell - base + penstock.cells_before(penstock.to_micros(at), window_us, capacity)
    END
    FROM penstock.slot_stretch
    WHERE pool_id = in_pool AND ends_at > at
    ORDER BY ends_at
    LIMIT 1
$$;

-- The instant at which a cell of a pool begins; NULL where there is no such cell.
CREATE FUNCTION penstock.cell_at(in_pool integer, cell bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT penstock.from_micros(
        number / capacity * window_us + (number % capacity * window_us + capacity - 1) / capacity)
    FROM penstock.slot_stretch
    CROSS JOIN LATERAL (SELECT cell - first_cell + base AS number) AS n
    WHERE pool_id = in_pool AND first_cell <= cell AND last_cell >= cell
    ORDER BY first_cell DESC
    LIMIT 1
$$;

-- Take free cells for several parties and return them as spans: each gets up to as many as it wants,
-- the earliest ones of its [from_cell, until_cell). Arrays run parallel, in the order of service,
-- which is quickest by ascending from_cell; the members of a party have ranks from `ranks` on. The
-- caller holds the pool's row.
-- The run in hand is written once it is left: a row that is updated again and again in one
-- transaction gets slower each time.
CREATE FUNCTION penstock.take_cells(
    in_pool integer, ranks bigint[], from_cells bigint[], until_cells bigint[], counts bigint[]
) RETURNS TABLE (rank bigint, cell bigint, cells bigint)
LANGUAGE plpgsql AS $$
DECLARE
    party record;
    wanted bigint;
    growing bigint;  -- The first cell of the run in hand,
    next_cell bigint;  -- and the one behind its last.
    is_grown boolean := false;
    following penstock.slot_run;  -- The run after it; the last one is followed by a row of NULLs.
    is_sighted boolean := false;  -- Whether `following` has been looked up.
BEGIN
    FOR party IN
        SELECT * FROM unnest(ranks, from_cells, until_cells, counts) AS p (rank, low, high, wanted)
    LOOP
        IF next_cell IS NULL OR party.low > next_cell OR party.low < growing THEN
            IF is_grown THEN
                PERFORM penstock.keep_run(in_pool, growing, next_cell - 1);
                is_grown := false;
            END IF;
            -- Who was too late for a day stands before those of its later part, if that has
            -- another cut-off.
            IF party.low < growing THEN
                is_sighted := false;
            END IF;
            growing := party.low;
            next_cell := party.low;
            IF NOT is_sighted OR following.first_cell <= party.low THEN
                is_sighted := false;
                SELECT r.first_cell, r.last_cell + 1 INTO growing, next_cell
                FROM penstock.slot_run AS r
                WHERE r.pool_id = in_pool AND r.first_cell <= party.low
                ORDER BY r.first_cell DESC
                LIMIT 1;
                IF next_cell IS NULL OR next_cell < party.low THEN
                    growing := party.low;
                    next_cell := party.low;
                END IF;
            END IF;
        END IF;

        rank := party.rank;
        wanted := party.wanted;
        WHILE wanted > 0 AND next_cell < party.high LOOP
            IF NOT is_sighted THEN
                SELECT * INTO following
                FROM penstock.slot_run AS r
                WHERE r.pool_id = in_pool AND r.first_cell > next_cell
                ORDER BY r.first_cell
                LIMIT 1;
                is_sighted := true;
            END IF;
            cell := next_cell;
            cells := least(wanted, party.high - next_cell, following.first_cell - next_cell);
            RETURN NEXT;
            is_grown := true;
            rank := rank + cells;
            wanted := wanted - cells;
            next_cell := next_cell + cells;
            IF next_cell = following.first_cell THEN
                DELETE FROM penstock.slot_run AS r
                WHERE r.pool_id = in_pool AND r.first_cell = following.first_cell;
                next_cell := following.last_cell + 1;
                is_sighted := false;
            END IF;
        END LOOP;
    END LOOP;
    IF is_grown THEN
        PERFORM penstock.keep_run(in_pool, growing, next_cell - 1);
    END IF;
END $$;

-- Write a run, longer than before or new.
CREATE FUNCTION penstock.keep_run(in_pool integer, low bigint, high bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO penstock.slot_run (pool_id, first_cell, last_cell) VALUES (in_pool, low, high)
    ON CONFLICT (pool_id, first_cell) DO UPDATE SET last_cell = excluded.last_cell
$$;

-- Forget runs whose cells have been past for a week: nobody asks for them, and they must not pile up.
CREATE FUNCTION penstock.forget_old_runs(in_pool integer, now_at timestamptz) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM penstock.slot_run
    USING (
        SELECT penstock.first_cell_at(in_pool, now_at - interval '168 hours') AS cell
    ) AS oldest
    WHERE pool_id = in_pool AND first_cell < oldest.cell AND last_cell < oldest.cell
$$;

-- Give one cell back; where it was not taken, nothing happens. The caller holds the pool's row.
CREATE FUNCTION penstock.free_cell(in_pool integer, freed bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    run penstock.slot_run;
BEGIN
    SELECT * INTO run FROM penstock.slot_run
    WHERE pool_id = in_pool AND first_cell <= freed
    ORDER BY first_cell DESC
    LIMIT 1;
    IF run.last_cell IS NULL OR run.last_cell < freed THEN
        RETURN;
    END IF;
    IF run.first_cell < freed THEN
        UPDATE penstock.slot_run SET last_cell = freed - 1
        WHERE pool_id = in_pool AND first_cell = run.first_cell;
    ELSE
        DELETE FROM penstock.slot_run WHERE pool_id = in_pool AND first_cell = run.first_cell;
    END IF;
    IF run.last_cell > freed THEN
        INSERT INTO penstock.slot_run (pool_id, first_cell, last_cell)
        VALUES (in_pool, freed + 1, run.last_cell);
    END IF;
END $$;

-- Reckon from the slots which cells of [from_at, until_at) are taken, and write the runs anew. Both
-- ends must be edges of windows or of stretches. A slot takes the cell that its place lies in; if
-- that one is taken, the next free one of its window; if there is none, the last free one. A window
-- with more slots than cells is full. So an older rule's slots count, wherever they lie.
CREATE FUNCTION penstock.mark_cells(in_pool integer, from_at timestamptz, until_at timestamptz)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET work_mem = '128MB'
AS $$
DECLARE
    low bigint := penstock.first_cell_at(in_pool, from_at);
    high bigint := coalesce(
        penstock.first_cell_at(in_pool, until_at),
        (SELECT max(last_cell) + 1 FROM penstock.slot_stretch WHERE pool_id = in_pool));
    -- How long before an instant the window of a slot there may begin. A whole day of slots would be
    -- read for one window of seconds otherwise.
    reach interval := (
        SELECT max(extract(epoch FROM window_size)) * interval '1 second'
        FROM penstock.slot_config
        WHERE pool_id = in_pool);
    left_end bigint;
    right_end bigint;
BEGIN
    WITH touching AS (
        DELETE FROM penstock.slot_run
        WHERE pool_id = in_pool AND last_cell >= low - 1 AND first_cell <= high
            AND first_cell >= coalesce((
                SELECT first_cell FROM penstock.slot_run
                WHERE pool_id = in_pool AND first_cell <= low
                ORDER BY first_cell DESC
                LIMIT 1), low)
        RETURNING first_cell, last_cell
    )
    SELECT min(first_cell), max(last_cell) INTO left_end, right_end FROM touching;

    WITH place AS (
        SELECT stretch.first_cell, stretch.first_cell - stretch.base AS shift, stretch.base,
            stretch.base + stretch.last_cell - stretch.first_cell AS last,
            stretch.capacity, stretch.window_us, slot.micros, slot.micros / stretch.window_us AS win
        FROM (
            SELECT *, penstock.to_micros(greatest(starts_at, from_at)) AS low_micros,
                penstock.to_micros(least(ends_at, until_at)) AS high_micros
            FROM penstock.slot_stretch
            WHERE pool_id = in_pool AND ends_at > from_at AND starts_at < until_at
            OFFSET 0
        ) AS stretch
        CROSS JOIN LATERAL (
            SELECT penstock.to_micros(window_at) + position AS micros
            FROM penstock.slot
            WHERE pool_id = in_pool
                AND window_at > greatest(stretch.starts_at, from_at) - reach
                AND window_at < least(stretch.ends_at, until_at)
            OFFSET 0
        ) AS slot
        WHERE slot.micros >= low_micros AND slot.micros < high_micros
    ), ranked AS (
        SELECT first_cell, shift, win, micros,
            greatest(win * capacity, base) AS lowest,
            least(win * capacity + capacity - 1, last) AS highest,
            greatest(win * capacity + micros % window_us * capacity / window_us, base) AS wanted,
            row_number() OVER (PARTITION BY first_cell, win ORDER BY micros) - 1 AS rank,
            count(*) OVER (PARTITION BY first_cell, win) AS slots
        FROM place
    ), taken AS (
        SELECT shift + CASE
            WHEN slots > highest - lowest THEN lowest + rank
            ELSE least(
                rank + max(wanted - rank) OVER (PARTITION BY first_cell, win ORDER BY micros),
                highest - slots + 1 + rank)
        END AS cell
        FROM ranked
        WHERE rank <= highest - lowest
    ), island AS (
        SELECT min(cell) AS first_cell, max(cell) AS last_cell
        FROM (SELECT cell, cell - row_number() OVER (ORDER BY cell) AS run FROM taken) AS numbered
        GROUP BY run
    ), piece AS (
        SELECT first_cell, last_cell FROM island
        UNION ALL SELECT left_end, low - 1 WHERE left_end < low
        UNION ALL SELECT high, right_end WHERE right_end >= high
    ), opened AS (
        SELECT first_cell, last_cell,
            first_cell > coalesce(lag(last_cell) OVER (ORDER BY first_cell) + 1, -1) AS is_apart
        FROM piece
    ), joined AS (
        SELECT first_cell, last_cell,
            count(*) FILTER (WHERE is_apart) OVER (ORDER BY first_cell) AS run
        FROM opened
    )
    INSERT INTO penstock.slot_run (pool_id, first_cell, last_cell)
    SELECT in_pool, min(first_cell), max(last_cell) FROM joined GROUP BY run;
END $$;

-- The same for the one window that an instant lies in; in closed time there is none.
CREATE FUNCTION penstock.mark_window(in_pool integer, at timestamptz) RETURNS void
LANGUAGE sql AS $$
    SELECT penstock.mark_cells(
        in_pool,
        greatest(penstock.from_micros(window_start), starts_at),
        least(penstock.from_micros(window_start + window_us), ends_at))
    FROM penstock.slot_stretch
    CROSS JOIN LATERAL (
        SELECT penstock.to_micros(at) / window_us * window_us AS window_start
    ) AS w
    WHERE pool_id = in_pool AND ends_at > at AND starts_at <= at
$$;

-- Add stretches behind the ones that a pool has; arrays run parallel. Too short ones have no cells.
CREATE FUNCTION penstock.add_stretches(
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

-- The same for a rule that holds: slots may lie there, booked when the pool was known further ahead.
CREATE FUNCTION penstock.extend_stretches(
    for_config integer, starts timestamptz[], ends timestamptz[], days date[], cut_offs timestamptz[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM penstock.add_stretches(for_config, starts, ends, days, cut_offs);
    PERFORM penstock.mark_cells(pool_id, starts[1], timestamptz '2200-01-01Z')
    FROM penstock.slot_config
    WHERE config_id = for_config;
END $$;

-- Make a new version of a pool's rule, or a pool with its first one; returns the version's id. It
-- holds for all callers once this commits: from the present window on, or, where the window's size
-- changes, from the next edge of the new windows. Slots stay where they are, and count. NULL periods
-- mean always open.
CREATE FUNCTION penstock.set_slot_config(
    pool text, max_per_window integer, window_size interval, spacing text, horizon interval,
    calendar jsonb, cut_off_policy text,
    starts timestamptz[], ends timestamptz[], days date[], cut_offs timestamptz[],
    who text, at timestamptz DEFAULT NULL
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
    last_at timestamptz;
BEGIN
    INSERT INTO penstock.slot_pool (name) VALUES (set_slot_config.pool) ON CONFLICT DO NOTHING;
    SELECT pool_id INTO this_pool FROM penstock.slot_pool
    WHERE name = set_slot_config.pool
    FOR UPDATE;
    now_at := coalesce(set_slot_config.at, clock_timestamp());

    UPDATE penstock.slot_config SET is_active = false
    WHERE pool_id = this_pool AND is_active
    RETURNING version INTO previous_version;
    -- Compared with the windows that hold now, not with a version that waits for its edge.
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
        effective_at, created_at, created_by, is_active)
    VALUES (
        this_pool, coalesce(previous_version, 0) + 1, set_slot_config.max_per_window,
        set_slot_config.window_size, set_slot_config.spacing, set_slot_config.horizon,
        set_slot_config.calendar, set_slot_config.cut_off_policy,
        edge_at, now_at, set_slot_config.who, true)
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
        mixed_until = greatest(mixed_until, last_at)
    WHERE pool_id = this_pool;
    IF last_at > edge_at THEN
        PERFORM penstock.mark_cells(this_pool, edge_at, timestamptz '2200-01-01Z');
        -- A window that is cut here has lost slots or cells behind the edge.
        PERFORM penstock.mark_window(this_pool, edge_at - interval '1 microsecond');
    END IF;
    RETURN made;
END $$;
