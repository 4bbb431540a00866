-- Seal up to `rows_max` archive rows of one month, and return how many; NULL if another session seals.
-- Rows are sealed in the order (xid, attempt_id) once their transaction is older than every open one:
-- no other row can appear before them, so each is sealed exactly once. Statements after the lock
-- see what the sealer before has committed; a crash leaves the chain as it was.
-- A session's setting for plans would read the whole archive here.
CREATE OR REPLACE FUNCTION penstock.seal_outbox(rows_max integer) RETURNS integer
LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET client_encoding = 'UTF8'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    head penstock.outbox_seal;
    made penstock.outbox_seal;
    current_era smallint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('penstock.seal_outbox', 0)) THEN
        RETURN NULL;
    END IF;
    IF (SELECT system_id FROM penstock.outbox_era ORDER BY era DESC LIMIT 1)
        <> (SELECT system_identifier FROM pg_control_system())
    THEN
        RETURN penstock.begin_outbox_era();
    END IF;
    current_era := (SELECT max(era) FROM penstock.outbox_era);
    SELECT * INTO head FROM penstock.outbox_seal ORDER BY seal_no DESC LIMIT 1;
    IF head.era IS DISTINCT FROM current_era THEN
        head.last_xid := '0';
        head.last_attempt_id := '00000000-0000-0000-0000-000000000000';
    END IF;

    WITH found AS MATERIALIZED (
        SELECT xid, attempt_id, date_trunc('month', created_at AT TIME ZONE 'UTC')::date AS month
        FROM penstock.outbox_attempt
        WHERE era = current_era
            AND xid >= head.last_xid
            AND xid < pg_snapshot_xmin(pg_current_snapshot())
            AND (xid > head.last_xid OR attempt_id > head.last_attempt_id)
        ORDER BY xid, attempt_id
        LIMIT rows_max
    ), same_month AS (
        -- Up to the first row of another month, so that a month can be dropped with its seals.
        SELECT found.*, bool_and(found.month = first.month) OVER (ORDER BY xid, attempt_id) AS is_in
        FROM found, (SELECT month FROM found ORDER BY xid, attempt_id LIMIT 1) AS first
    )
    SELECT month, xid, attempt_id INTO made.month, made.last_xid, made.last_attempt_id
    FROM same_month
    WHERE is_in
    ORDER BY xid DESC, attempt_id DESC
    LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT count(*), array_agg(attempt_id), array_agg(hash)
    INTO made.row_count, made.attempt_ids, made.row_hashes
    FROM (
        SELECT a.attempt_id, penstock.outbox_attempt_hash(a, i) AS hash
        FROM penstock.outbox_attempt AS a
        LEFT JOIN penstock.outbox_instruction AS i ON i.outbox_id = a.outbox_id
        WHERE a.era = current_era
            AND a.xid >= head.last_xid
            AND (a.xid > head.last_xid OR a.attempt_id > head.last_attempt_id)
            AND a.xid <= made.last_xid
            AND (a.xid < made.last_xid OR a.attempt_id <= made.last_attempt_id)
        ORDER BY a.xid, a.attempt_id
    ) AS hashed;
    made.kind := 'rows';
    made.era := current_era;
    made.rows_hash := penstock.outbox_rows_hash(made.attempt_ids, made.row_hashes);
    PERFORM penstock.add_outbox_seal(made);
    RETURN made.row_count;
END $$;
