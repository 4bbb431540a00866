-- Schedule a pool's future slots again under the present rule, after its capacity or its calendar
-- has changed. Slots before freeze_until, rounded up to a window's edge, stay; the others keep
-- their order, and each takes the first cell at or after the time that it asked for. Every move is
-- recorded in slot_move and announced on the channel penstock_slot_moves; items of lanes get
-- the new due instants. A dry run only counts. The pool's callers wait until this commits.
CREATE OR REPLACE FUNCTION penstock.reflow_slots(
    pool text, freeze_until timestamptz, is_dry_run boolean, who text, at timestamptz DEFAULT NULL
) RETURNS TABLE (
    reflow_id bigint, pool_id integer, frozen_until timestamptz, considered bigint, moved bigint,
    last_before timestamptz, last_after timestamptz, longest_delay interval
)
LANGUAGE plpgsql
SET work_mem = '128MB'
AS $$
#variable_conflict use_column
DECLARE
    this penstock.slot_pool;
    now_at timestamptz;
    edge_at timestamptz;
    made bigint;
BEGIN
    SELECT * INTO this FROM penstock.slot_pool WHERE name = reflow_slots.pool FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown slot pool %', quote_nullable(pool) USING ERRCODE = 'PS404';
    END IF;
    now_at := coalesce(reflow_slots.at, clock_timestamp());
    SELECT CASE
        WHEN greatest(reflow_slots.freeze_until, now_at) <= starts_at THEN starts_at
        ELSE least(ends_at, penstock.from_micros((low + window_us - 1) / window_us * window_us))
    END
    INTO edge_at
    FROM penstock.slot_stretch
    CROSS JOIN LATERAL (
        SELECT penstock.to_micros(greatest(reflow_slots.freeze_until, now_at)) AS low
    ) AS l
    WHERE pool_id = this.pool_id AND ends_at > greatest(reflow_slots.freeze_until, now_at)
    ORDER BY ends_at
    LIMIT 1;
    -- After the last stretch there is nothing to move.
    edge_at := coalesce(edge_at, greatest(reflow_slots.freeze_until, now_at));

    DROP TABLE IF EXISTS pg_temp.penstock_reflow;
    CREATE TEMPORARY TABLE penstock_reflow ON COMMIT DROP AS
    WITH later AS (
        SELECT event_id, requested_at, scheduled_at, created_at,
            greatest(requested_at, created_at) AS wanted_at,
            penstock.to_micros(window_at) + position AS micros,
            row_number() OVER (ORDER BY penstock.to_micros(window_at) + position) AS rank
        FROM penstock.slot
        WHERE pool_id = this.pool_id AND window_at > edge_at - interval '24 hours'
            AND penstock.to_micros(window_at) + position >= penstock.to_micros(edge_at)
    ), wish AS MATERIALIZED (
        -- Most slots of a burst ask for the same time: each time is looked up once. A request past
        -- the cut-off of a day stays past it.
        SELECT wanted_at, greatest(
            penstock.first_cell_at(this.pool_id, edge_at),
            CASE WHEN is_late AND policy = 'next_open_window' THEN day_end ELSE cell END) AS cell
        FROM (SELECT DISTINCT wanted_at FROM later) AS d
        LEFT JOIN LATERAL penstock.place_in_day(this.pool_id, wanted_at) AS place ON true
    ), laid AS (
        SELECT later.*, rank + max(wish.cell - rank) OVER (ORDER BY rank) AS cell
        FROM later JOIN wish USING (wanted_at)
    )
    SELECT event_id, requested_at, scheduled_at, created_at, micros, stretch.config_id,
        stretch.window_us, number / capacity * stretch.window_us AS window_start,
        (number % capacity * stretch.window_us + capacity - 1) / capacity AS offset_us,
        greatest(
            number / capacity * stretch.window_us, penstock.to_micros(stretch.starts_at),
            penstock.to_micros(requested_at)) AS jitter_from,
        CASE WHEN stretch.spacing = 'random' THEN least(
            number / capacity * stretch.window_us + stretch.window_us,
            penstock.to_micros(stretch.ends_at)) END AS jitter_until
    FROM laid
    LEFT JOIN LATERAL (
        SELECT * FROM penstock.slot_stretch
        WHERE pool_id = this.pool_id AND first_cell <= laid.cell AND last_cell >= laid.cell
        ORDER BY first_cell DESC
        LIMIT 1
    ) AS stretch ON true
    CROSS JOIN LATERAL (SELECT laid.cell - first_cell + base AS number) AS n;
    IF EXISTS (SELECT FROM penstock_reflow WHERE config_id IS NULL) THEN
        RAISE EXCEPTION 'the pool has too few cells before its calendar ends' USING ERRCODE = 'PS503';
    END IF;

    SELECT count(*), max(scheduled_at) INTO considered, last_before FROM penstock_reflow;
    DELETE FROM penstock_reflow WHERE micros = window_start + offset_us;
    ALTER TABLE penstock_reflow ADD COLUMN moved_to timestamptz;
    UPDATE penstock_reflow SET moved_to = penstock.from_micros(CASE
        WHEN jitter_until IS NULL THEN window_start + offset_us
        ELSE penstock.jittered(jitter_from, jitter_until)
    END);
    SELECT count(*), greatest(max(moved_to - scheduled_at), interval '0')
    INTO moved, longest_delay
    FROM penstock_reflow;
    SELECT max(scheduled_at) INTO last_after
    FROM (
        SELECT moved_to AS scheduled_at FROM penstock_reflow
        UNION ALL
        SELECT scheduled_at FROM penstock.slot
        WHERE pool_id = this.pool_id AND window_at > edge_at - interval '24 hours'
            AND event_id NOT IN (SELECT event_id FROM penstock_reflow)
            AND penstock.to_micros(window_at) + position >= penstock.to_micros(edge_at)
    ) AS after;
    reflow_id := NULL;
    pool_id := this.pool_id;
    frozen_until := edge_at;
    IF is_dry_run OR moved = 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;

    INSERT INTO penstock.slot_reflow (pool_id, frozen_until, moved, created_at, created_by)
    VALUES (this.pool_id, edge_at, moved, now_at, who)
    RETURNING slot_reflow.reflow_id INTO made;
    DELETE FROM penstock.slot USING penstock_reflow AS r WHERE slot.event_id = r.event_id;
    INSERT INTO penstock.slot (
        requested_at, scheduled_at, window_at, position, created_at, pool_id, config_id, event_id)
    SELECT requested_at, moved_to, penstock.from_micros(window_start), offset_us, created_at,
        this.pool_id, config_id, event_id
    FROM penstock_reflow;
    INSERT INTO penstock.slot_move (reflow_id, moved_from, moved_to, event_id)
    SELECT made, scheduled_at, moved_to, event_id FROM penstock_reflow ORDER BY moved_to;
    PERFORM penstock.mark_cells(this.pool_id, edge_at, timestamptz '2200-01-01Z');
    UPDATE penstock.slot_pool SET mixed_until = least(mixed_until, edge_at)
    WHERE slot_pool.pool_id = this.pool_id;
    PERFORM penstock.move_due_instants(
        array_agg(substr(event_id, 6)::bigint), array_agg(scheduled_at), array_agg(moved_to))
    FROM penstock_reflow
    WHERE event_id LIKE 'item:%'
    HAVING count(*) > 0;
    PERFORM pg_notify('penstock_slot_moves', json_build_object(
        'pool', this.name, 'reflow_id', made, 'moved', moved)::text);
    reflow_id := made;
    RETURN NEXT;
END $$;
