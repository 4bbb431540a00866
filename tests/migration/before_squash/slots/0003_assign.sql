-- The public interface in SQL: give events their slots, take one back. Callable from any language in
-- anybody's transaction; callers of one pool take turns until they commit.

-- Give each event a slot of a pool at or after the time that it asks for, and return one row per
-- event, in order. A time in the past means from now on. Outcomes: assigned; existing (the same
-- request was made before; its slot again); conflict (the event has a slot for another time or pool;
-- that slot is returned); beyond_horizon, after_cut_off, day_full, exhausted (nothing was booked).
-- Earlier times are served first, equal ones in the given order. Raises PS404 for an unknown pool.
CREATE FUNCTION penstock.assign_slots(
    pool text, event_ids text[], requested_ats timestamptz[], at timestamptz DEFAULT NULL
) RETURNS TABLE (
    index bigint, outcome text, event_id text, pool_id integer, requested_at timestamptz,
    scheduled_at timestamptz, window_at timestamptz, "position" bigint, config_id integer,
    created_at timestamptz
)
LANGUAGE plpgsql
-- A plan that was made while the tables were small would be kept, and walk over them, when they grow.
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    this penstock.slot_pool;
    now_at timestamptz;
    wanted_ids text[];
    wanted_ats timestamptz[];
    wanted_indexes bigint[];
    -- Those who want the same instant are a party: ranks of its members, cells, and what becomes of
    -- those who find none.
    ranks bigint[];
    from_cells bigint[];
    until_cells bigint[];
    counts bigint[];
    refusals text[];
    span_ranks bigint[];
    span_cells bigint[];
    span_counts bigint[];
BEGIN
    SELECT * INTO this FROM penstock.slot_pool WHERE name = assign_slots.pool FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown slot pool %', quote_nullable(pool) USING ERRCODE = 'PS404';
    END IF;
    -- Read after the wait for the others: their now may lie behind the start of our transaction.
    now_at := coalesce(assign_slots.at, clock_timestamp());

    SELECT array_agg(event_id ORDER BY wanted_at, index),
        array_agg(requested_at ORDER BY wanted_at, index),
        array_agg(index ORDER BY wanted_at, index)
    INTO wanted_ids, wanted_ats, wanted_indexes
    FROM (
        SELECT DISTINCT ON (event_id) event_id, requested_at, index,
            greatest(requested_at, now_at) AS wanted_at
        FROM unnest(event_ids, requested_ats) WITH ORDINALITY AS g (event_id, requested_at, index)
        WHERE requested_at <= now_at + this.horizon
            -- A scalar subquery, since the planner may turn NOT EXISTS into a walk over all slots.
            AND (SELECT true FROM penstock.slot WHERE slot.event_id = g.event_id) IS NULL
        ORDER BY event_id, index
    ) AS fresh;

    WITH party AS (
        SELECT greatest(requested_at, now_at) AS wanted_at, min(rank) AS rank, count(*) AS members
        FROM unnest(wanted_ats) WITH ORDINALITY AS w (requested_at, rank)
        GROUP BY 1
    ), last AS (
        SELECT last_cell + 1 AS end_cell FROM penstock.slot_stretch
        WHERE pool_id = this.pool_id
        ORDER BY first_cell DESC
        LIMIT 1
    ), placed AS (
        SELECT party.*, last.end_cell, place.*
        FROM party
        CROSS JOIN last
        LEFT JOIN LATERAL penstock.place_in_day(this.pool_id, party.wanted_at) AS place ON true
    )
    SELECT array_agg(rank ORDER BY rank), array_agg(members ORDER BY rank),
        array_agg(CASE
            WHEN is_late AND policy = 'next_open_window' THEN day_end
            ELSE coalesce(cell, end_cell)
        END ORDER BY rank),
        array_agg(CASE
            WHEN is_late AND policy = 'reject' THEN cell
            WHEN policy <> 'next_open_window' THEN day_end
            ELSE end_cell
        END ORDER BY rank),
        array_agg(CASE
            WHEN is_late AND policy = 'reject' THEN 'after_cut_off'
            WHEN policy = 'reject' THEN 'day_full'
            WHEN policy = 'overbook' THEN 'overbook'
            ELSE 'exhausted'
        END ORDER BY rank)
    INTO ranks, counts, from_cells, until_cells, refusals
    FROM placed;
    SELECT array_agg(rank), array_agg(cell), array_agg(cells)
    INTO span_ranks, span_cells, span_counts
    FROM penstock.take_cells(this.pool_id, ranks, from_cells, until_cells, counts);

    -- Now and then is enough, and most calls need not look.
    IF random() < 0.01 THEN
        PERFORM penstock.forget_old_runs(this.pool_id, now_at);
    END IF;
    IF span_ranks IS NOT NULL THEN
        -- Nearly always everybody is new and gets a slot: then this is the answer, and nothing has to
        -- be read again.
        RETURN QUERY
        WITH placed AS MATERIALIZED (
            SELECT w.index, w.event_id, w.requested_at,
                penstock.from_micros(CASE spacing
                    WHEN 'even' THEN window_start + offset_us
                    ELSE penstock.jittered(
                        greatest(
                            window_start, penstock.to_micros(starts_at),
                            penstock.to_micros(w.requested_at), penstock.to_micros(now_at)),
                        least(window_start + window_us, penstock.to_micros(ends_at)))
                END) AS scheduled_at,
                penstock.from_micros(window_start) AS window_at, offset_us, place.config_id
            FROM penstock.span_places(this.pool_id, span_ranks, span_cells, span_counts) AS place
            JOIN unnest(wanted_ids, wanted_ats, wanted_indexes) WITH ORDINALITY
                AS w (event_id, requested_at, index, rank) USING (rank)
        ), booked AS (
            INSERT INTO penstock.slot (
                requested_at, scheduled_at, window_at, position, created_at, pool_id, config_id,
                event_id)
            SELECT requested_at, scheduled_at, window_at, offset_us, now_at, this.pool_id, config_id,
                event_id
            FROM placed
            -- All in one order, so that two pools that are given the same events cannot deadlock.
            ORDER BY event_id COLLATE "C"
            ON CONFLICT ON CONSTRAINT event_has_one_slot DO NOTHING
            RETURNING 1
        )
        SELECT placed.index, 'assigned', placed.event_id, this.pool_id, placed.requested_at,
            placed.scheduled_at, placed.window_at, placed.offset_us, placed.config_id, now_at
        FROM placed
        WHERE (SELECT count(*) FROM booked) = cardinality(event_ids)
        ORDER BY placed.index;
        IF FOUND THEN
            RETURN;
        END IF;
        -- An event may have got a slot of another pool in this moment: ours goes back.
        PERFORM penstock.free_cell(this.pool_id, cell)
        FROM penstock.span_places(this.pool_id, span_ranks, span_cells, span_counts)
        JOIN unnest(wanted_ids) WITH ORDINALITY AS w (event_id, rank) USING (rank)
        WHERE this.pool_id IS DISTINCT FROM (
            SELECT pool_id FROM penstock.slot WHERE slot.event_id = w.event_id);
        IF EXISTS (
            SELECT FROM unnest(wanted_ids) AS w (event_id)
            WHERE (SELECT true FROM penstock.slot WHERE slot.event_id = w.event_id) IS NULL
        ) AND cardinality(wanted_ids) = (SELECT sum(c) FROM unnest(span_counts) AS c) THEN
            RAISE EXCEPTION 'an event was given a slot and lost it meanwhile; try again'
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF 'overbook' = ANY (refusals) THEN
        PERFORM penstock.overbook(this.pool_id, event_id, requested_at, now_at)
        FROM unnest(ranks, counts, refusals) AS party (first_rank, members, refusal)
        CROSS JOIN LATERAL generate_series(first_rank, first_rank + members - 1) AS rank
        JOIN unnest(wanted_ids, wanted_ats) WITH ORDINALITY AS w (event_id, requested_at, rank)
            USING (rank)
        WHERE refusal = 'overbook'
            AND (SELECT true FROM penstock.slot WHERE slot.event_id = w.event_id) IS NULL;
    END IF;

    RETURN QUERY
    SELECT g.index,
        CASE
            WHEN slot.event_id IS NULL THEN coalesce(refused.refusal, 'beyond_horizon')
            WHEN slot.pool_id <> this.pool_id OR slot.requested_at <> g.requested_at THEN 'conflict'
            WHEN w.index IS NULL THEN 'existing'
            ELSE 'assigned'
        END,
        g.event_id, slot.pool_id, slot.requested_at, slot.scheduled_at, slot.window_at,
        slot.position, slot.config_id, slot.created_at
    FROM unnest(event_ids, requested_ats) WITH ORDINALITY AS g (event_id, requested_at, index)
    LEFT JOIN unnest(wanted_indexes) AS w (index) USING (index)
    LEFT JOIN LATERAL (
        SELECT * FROM penstock.slot WHERE slot.event_id = g.event_id LIMIT 1
    ) AS slot ON true
    LEFT JOIN (
        SELECT event_id, refusal
        FROM unnest(ranks, counts, refusals) AS party (first_rank, members, refusal)
        CROSS JOIN LATERAL generate_series(first_rank, first_rank + members - 1) AS rank
        JOIN unnest(wanted_ids) WITH ORDINALITY AS w (event_id, rank) USING (rank)
        -- Only to be asked where somebody has found nothing.
        WHERE cardinality(wanted_ids) > coalesce((SELECT sum(c) FROM unnest(span_counts) AS c), 0)
    ) AS refused ON refused.event_id = g.event_id
    ORDER BY g.index;
END $$;

-- Where in the days of a pool an instant lies: the first cell at or after it; the first cell that is
-- no more of its day, which is that of the stretch it lies in, or else of the next one; and whether it
-- is past the day's cut-off. No row where the pool's calendar has ended.
CREATE FUNCTION penstock.place_in_day(in_pool integer, at timestamptz)
RETURNS TABLE (cell bigint, day_end bigint, policy text, is_late boolean)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT
        CASE
            WHEN at <= starts_at THEN first_cell
            ELSE first_cell - base
                + penstock.cells_before(penstock.to_micros(at), window_us, capacity)
        END,
        CASE WHEN day IS NOT NULL THEN (
            SELECT max(last_cell) + 1 FROM penstock.slot_stretch AS same
            WHERE same.pool_id = in_pool AND same.day = stretch.day
                AND same.ends_at >= stretch.ends_at
                AND same.ends_at < stretch.ends_at + interval '48 hours')
        END,
        cut_off_policy, cut_off_at <= at
    FROM penstock.slot_stretch AS stretch
    WHERE pool_id = in_pool AND ends_at > at
    ORDER BY ends_at
    LIMIT 1
$$;

-- Where the cells of spans lie: one row per cell, with its rank and its stretch.
CREATE FUNCTION penstock.span_places(
    in_pool integer, ranks bigint[], cells bigint[], counts bigint[]
) RETURNS TABLE (
    rank bigint, cell bigint, window_start bigint, offset_us bigint, window_us bigint,
    config_id integer, spacing text, starts_at timestamptz, ends_at timestamptz
)
LANGUAGE sql STABLE AS $$
    SELECT span.rank + place.cell - span.cell, place.cell,
        number / capacity * window_us,
        (number % capacity * window_us + capacity - 1) / capacity,
        window_us, config_id, spacing, starts_at, ends_at
    FROM unnest(ranks, cells, counts) AS span (rank, cell, count)
    CROSS JOIN LATERAL (
        SELECT * FROM penstock.slot_stretch
        WHERE pool_id = in_pool AND first_cell < span.cell + span.count
            AND first_cell >= (
                SELECT first_cell FROM penstock.slot_stretch
                WHERE pool_id = in_pool AND first_cell <= span.cell
                ORDER BY first_cell DESC
                LIMIT 1)
    ) AS stretch
    CROSS JOIN LATERAL generate_series(
        greatest(span.cell, stretch.first_cell),
        least(span.cell + span.count - 1, stretch.last_cell)) AS place (cell)
    CROSS JOIN LATERAL (SELECT place.cell - first_cell + base AS number) AS n
$$;

-- An instant chosen at random from [low, high).
CREATE FUNCTION penstock.jittered(low bigint, high bigint) RETURNS bigint
LANGUAGE sql VOLATILE
RETURN low + floor(random() * (high - low))::bigint;

-- Book over capacity in the day of a time, at or after it: beside a cell that the event's name picks,
-- or, where no cell of the day is left, from the time itself on. The caller holds the pool's row.
CREATE FUNCTION penstock.overbook(
    in_pool integer, event text, wanted_at timestamptz, now_at timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    micros bigint := penstock.to_micros(greatest(wanted_at, now_at));
    choice bigint := ('x' || substr(md5(event), 1, 8))::bit(32)::bigint;
    -- All that the pool ever had: the same instant may be taken as a place in another window.
    window_sizes bigint[] := ARRAY(
        SELECT DISTINCT (extract(epoch FROM window_size) * 1000000)::bigint
        FROM penstock.slot_config
        WHERE pool_id = in_pool);
    place record;
    chosen record;
BEGIN
    SELECT * INTO place FROM penstock.place_in_day(in_pool, greatest(wanted_at, now_at));
    SELECT * INTO chosen
    FROM penstock.span_places(
        in_pool, ARRAY[1::bigint],
        -- The day's last cell tells the window's size where no cell of the day is left.
        ARRAY[least(place.cell + choice % greatest(place.day_end - place.cell, 1), place.day_end - 1)],
        ARRAY[1::bigint]);
    IF place.day_end > place.cell THEN
        micros := chosen.window_start + chosen.offset_us + 1;
    END IF;
    WHILE EXISTS (
        SELECT FROM unnest(window_sizes) AS size
        JOIN penstock.slot ON pool_id = in_pool AND position = micros % size
            AND window_at = penstock.from_micros(micros / size * size)
    ) LOOP
        micros := micros + 1;
    END LOOP;
    INSERT INTO penstock.slot (
        requested_at, scheduled_at, window_at, position, created_at, pool_id, config_id, event_id)
    VALUES (
        wanted_at, penstock.from_micros(micros),
        penstock.from_micros(micros / chosen.window_us * chosen.window_us),
        micros % chosen.window_us, now_at, in_pool, chosen.config_id, event)
    ON CONFLICT ON CONSTRAINT event_has_one_slot DO NOTHING;
    UPDATE penstock.slot_pool
    SET mixed_until = greatest(mixed_until, penstock.from_micros(micros + chosen.window_us))
    WHERE pool_id = in_pool;
    PERFORM penstock.mark_window(in_pool, penstock.from_micros(micros));
END $$;

-- Give an event's slot back to the next caller. True when this call did it; the slot is kept in
-- slot_cancelled, and the event may be given another one.
CREATE FUNCTION penstock.cancel_slot(event text, who text, at timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    this penstock.slot_pool;
    gone penstock.slot;
    place_at timestamptz;
BEGIN
    SELECT pool.* INTO this FROM penstock.slot JOIN penstock.slot_pool AS pool USING (pool_id)
    WHERE slot.event_id = event
    FOR NO KEY UPDATE OF pool;
    DELETE FROM penstock.slot
    WHERE slot.event_id = event AND pool_id = this.pool_id
    RETURNING * INTO gone;
    IF gone.event_id IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO penstock.slot_cancelled (
        cancelled_at, requested_at, scheduled_at, created_at, pool_id, config_id, event_id,
        cancelled_by)
    VALUES (
        coalesce(at, clock_timestamp()), gone.requested_at, gone.scheduled_at, gone.created_at,
        gone.pool_id, gone.config_id, gone.event_id, who);

    place_at := penstock.from_micros(penstock.to_micros(gone.window_at) + gone.position);
    IF gone.window_at >= this.mixed_until THEN
        PERFORM penstock.free_cell(
            this.pool_id, penstock.first_cell_at(this.pool_id, place_at));
    ELSE
        PERFORM penstock.mark_window(this.pool_id, place_at);
    END IF;
    RETURN true;
END $$;

SELECT penstock.set_slot_config(
    'default', 100, interval '4 seconds', 'even', interval '366 days', NULL, NULL,
    NULL, NULL, NULL, NULL, 'migration');
