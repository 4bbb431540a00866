-- Assign each event a slot of a pool at or after the time that it asks for, and return one row per
-- event, in order. A time in the past means from now on. Outcomes: assigned; existing (the event
-- has a slot, which is returned, whatever time or pool it was booked for); conflict (the pool is
-- strict, and the event has a slot for another time or pool, which is returned); beyond_horizon,
-- after_cut_off, day_full, exhausted (nothing was booked). Earlier times are served first, equal
-- ones in the given order. Raises PS404 for an unknown pool. Callers of one pool wait for each
-- other until they commit.
CREATE OR REPLACE FUNCTION penstock.assign_slots(
    pool text, event_ids text[], requested_ats timestamptz[], at timestamptz DEFAULT NULL
) RETURNS TABLE (
    index bigint, outcome text, event_id text, pool_id integer, requested_at timestamptz,
    scheduled_at timestamptz, window_at timestamptz, "position" bigint, config_id integer,
    created_at timestamptz
)
LANGUAGE plpgsql
-- A plan made while the tables were small would be kept, and scan them when they have grown.
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    this penstock.slot_pool;
    now_at timestamptz;
    wanted_ids text[];
    wanted_ats timestamptz[];
    wanted_indexes bigint[];
    -- Requests for the same instant form one group: the ranks of its members, its range of
    -- cells, and the outcome of members that find no cell.
    ranks bigint[];
    from_cells bigint[];
    until_cells bigint[];
    counts bigint[];
    refusals text[];
    span_ranks bigint[];
    span_cells bigint[];
    span_counts bigint[];
    is_booked boolean := false;
BEGIN
    SELECT * INTO this FROM penstock.slot_pool WHERE name = assign_slots.pool FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown slot pool %', quote_nullable(pool) USING ERRCODE = 'PS404';
    END IF;
    -- Read the clock after taking the lock: another caller may have used a later now meanwhile.
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
            -- One index scan for all events; NOT EXISTS may become a scan of all slots. A NULL
            -- event is not found here, and fails below.
            AND (event_id IN (
                SELECT event_id FROM penstock.slot WHERE event_id = ANY (assign_slots.event_ids)
            )) IS NOT TRUE
        ORDER BY event_id, index
    ) AS fresh;

    WITH request_group AS (
        SELECT greatest(requested_at, now_at) AS wanted_at, min(rank) AS rank, count(*) AS members
        FROM unnest(wanted_ats) WITH ORDINALITY AS w (requested_at, rank)
        GROUP BY 1
    ), last AS (
        SELECT last_cell + 1 AS end_cell FROM penstock.slot_stretch
        WHERE pool_id = this.pool_id
        ORDER BY first_cell DESC
        LIMIT 1
    ), placed AS (
        SELECT request_group.*, last.end_cell, place.*
        FROM request_group
        CROSS JOIN last
        LEFT JOIN LATERAL penstock.place_in_day(this.pool_id, request_group.wanted_at) AS place ON true
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

    -- One call in a hundred is enough; the others skip the look-up.
    IF random() < 0.01 THEN
        PERFORM penstock.forget_old_runs(this.pool_id, now_at);
    END IF;
    IF span_ranks IS NOT NULL THEN
        -- Usually every event is new and gets a slot: then this is the result, and nothing is read
        -- again. An INSERT without ON CONFLICT takes two thirds of the time; for one event
        -- alone a savepoint costs more than it saves.
        IF cardinality(event_ids) > 1 THEN
            BEGIN
                RETURN QUERY
                WITH placed AS MATERIALIZED (
                    SELECT * FROM penstock.lay_out(
                        this.pool_id, now_at, span_ranks, span_cells, span_counts, wanted_ids,
                        wanted_ats, wanted_indexes)
                ), booked AS (
                    INSERT INTO penstock.slot (
                        requested_at, scheduled_at, window_at, position, created_at, pool_id,
                        config_id, event_id)
                    SELECT requested_at, scheduled_at, window_at, position, now_at, this.pool_id,
                        config_id, event_id
                    FROM placed
                    -- All in one order, so that two pools that are given the same events cannot
                    -- deadlock.
                    ORDER BY event_id COLLATE "C"
                    RETURNING 1
                )
                SELECT placed.index, 'assigned', placed.event_id, this.pool_id, placed.requested_at,
                    placed.scheduled_at, placed.window_at, placed.position, placed.config_id, now_at
                FROM placed
                WHERE (SELECT count(*) FROM booked) = cardinality(event_ids)
                ORDER BY placed.index;
                IF FOUND THEN
                    RETURN;
                END IF;
                is_booked := true;
            EXCEPTION WHEN unique_violation THEN
                NULL;  -- Another pool was first: all of it is rolled back, and repeated below.
            END;
        END IF;
        IF NOT is_booked THEN
            RETURN QUERY
            WITH placed AS MATERIALIZED (
                SELECT * FROM penstock.lay_out(
                    this.pool_id, now_at, span_ranks, span_cells, span_counts, wanted_ids,
                    wanted_ats, wanted_indexes)
            ), booked AS (
                INSERT INTO penstock.slot (
                    requested_at, scheduled_at, window_at, position, created_at, pool_id, config_id,
                    event_id)
                SELECT requested_at, scheduled_at, window_at, position, now_at, this.pool_id,
                    config_id, event_id
                FROM placed
                ORDER BY event_id COLLATE "C"
                ON CONFLICT ON CONSTRAINT event_has_one_slot DO NOTHING
                RETURNING 1
            )
            SELECT placed.index, 'assigned', placed.event_id, this.pool_id, placed.requested_at,
                placed.scheduled_at, placed.window_at, placed.position, placed.config_id, now_at
            FROM placed
            WHERE (SELECT count(*) FROM booked) = cardinality(event_ids)
            ORDER BY placed.index;
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
        -- An event may have got a slot of another pool meanwhile: its cell here is freed.
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
        FROM unnest(ranks, counts, refusals) AS request_group (first_rank, members, refusal)
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
            -- Wanted, and in this pool, which is locked: it was booked above.
            WHEN w.index IS NOT NULL AND slot.pool_id = this.pool_id THEN 'assigned'
            WHEN this.is_strict
                AND (slot.pool_id <> this.pool_id OR slot.requested_at <> g.requested_at)
                THEN 'conflict'
            ELSE 'existing'
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
        FROM unnest(ranks, counts, refusals) AS request_group (first_rank, members, refusal)
        CROSS JOIN LATERAL generate_series(first_rank, first_rank + members - 1) AS rank
        JOIN unnest(wanted_ids) WITH ORDINALITY AS w (event_id, rank) USING (rank)
        -- Needed only where an event has found no cell.
        WHERE cardinality(wanted_ids) > coalesce((SELECT sum(c) FROM unnest(span_counts) AS c), 0)
    ) AS refused ON refused.event_id = g.event_id
    ORDER BY g.index;
END $$;
