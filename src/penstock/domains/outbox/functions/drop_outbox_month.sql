-- Remove one month of the archive, and return how many rows that were, or NULL if it has to stay: a row
-- of it is not sealed, an instruction with a row in it is not finished (what was tried before decides
-- whether it may be sent; what a rail may still settle, or has reported and is not applied, is not
-- finished either), or rows of it are in the default partition. Its seals keep their hashes, the
-- chain gets an entry about the removal, and the last state of each instruction stays.
-- Runs as its owner, because only the owner of a table may drop it.
CREATE OR REPLACE FUNCTION penstock.drop_outbox_month(month date) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    low timestamptz := month::timestamp AT TIME ZONE 'UTC';
    high timestamptz := (month + interval '1 month')::timestamp AT TIME ZONE 'UTC';
    part text := 'outbox_attempt_' || to_char(month, 'YYYYMM');
    rows_present bigint;
    made penstock.outbox_seal;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.outbox_attempt', 'DELETE') THEN
        RAISE insufficient_privilege
            USING MESSAGE = 'to drop a month needs DELETE on penstock.outbox_attempt';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock.open_outbox_month', 0));
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock.seal_outbox', 0));
    PERFORM set_config('lock_timeout', '2s', true);
    IF to_regclass('penstock.' || part) IS NULL
        OR EXISTS (
            SELECT FROM penstock.outbox_attempt_kept WHERE created_at >= low AND created_at < high)
        OR EXISTS (
            SELECT FROM penstock.open_outbox_items() AS open (item_id)
            JOIN penstock.outbox_instruction AS i USING (item_id)
            JOIN penstock.outbox_attempt AS a USING (outbox_id)
            WHERE a.created_at >= low AND a.created_at < high)
        OR EXISTS (
            SELECT FROM penstock.outbox_lookup AS k
            JOIN penstock.outbox_instruction AS i USING (item_id)
            JOIN penstock.outbox_attempt AS a USING (outbox_id)
            WHERE a.created_at >= low AND a.created_at < high)
        OR EXISTS (
            SELECT FROM penstock.outbox_result AS r JOIN penstock.outbox_attempt AS a USING (outbox_id)
            WHERE r.applied_at IS NULL AND a.created_at >= low AND a.created_at < high)
    THEN
        RETURN NULL;
    END IF;
    SELECT sum(row_count), (array_agg(hash ORDER BY seal_no DESC))[1]
    INTO made.row_count, made.rows_hash
    FROM penstock.outbox_seal AS s
    WHERE s.month = drop_outbox_month.month AND s.kind <> 'dropped';
    EXECUTE format('SELECT count(*) FROM penstock.%I', part) INTO rows_present;
    IF rows_present <> coalesce(made.row_count, 0) THEN
        RETURN NULL;
    END IF;
    -- Before the lock, which stops all that reads the archive: this reads a whole month.
    INSERT INTO penstock.outbox_kept_state AS kept
        (outbox_id, states, is_contradicted, state, attempt_no, last_error, rail_reference, last_at)
    SELECT outbox_id, every.states, every.is_contradicted, last.state, last.attempt_no,
        coalesce(last.error_message, last.error_code), last.rail_reference, last.created_at
    FROM (
        SELECT a.outbox_id, array_agg(DISTINCT a.state) AS states,
            bool_or(a.error_code IS NOT DISTINCT FROM 'AFTER_REFUSAL') AS is_contradicted
        FROM penstock.outbox_attempt AS a
        WHERE a.created_at >= low AND a.created_at < high
        GROUP BY a.outbox_id
    ) AS every
    JOIN (
        SELECT DISTINCT ON (a.outbox_id) a.*
        FROM penstock.outbox_attempt AS a
        WHERE a.created_at >= low AND a.created_at < high
        ORDER BY a.outbox_id, a.created_at DESC, a.attempt_id DESC
    ) AS last USING (outbox_id)
    ON CONFLICT (outbox_id) DO UPDATE
    SET states = ARRAY(SELECT DISTINCT unnest(kept.states || excluded.states)),
        is_contradicted = kept.is_contradicted OR excluded.is_contradicted,
        (state, attempt_no, last_error, rail_reference, last_at) = (
            SELECT newer.state, newer.attempt_no, newer.last_error, newer.rail_reference, newer.last_at
            FROM (VALUES
                (kept.state, kept.attempt_no, kept.last_error, kept.rail_reference, kept.last_at),
                (excluded.state, excluded.attempt_no, excluded.last_error, excluded.rail_reference,
                    excluded.last_at)
            ) AS newer (state, attempt_no, last_error, rail_reference, last_at)
            ORDER BY newer.last_at DESC
            LIMIT 1
        );
    LOCK TABLE ONLY penstock.outbox_attempt IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE penstock.%I IN ACCESS EXCLUSIVE MODE', part);
    EXECUTE format('SELECT count(*) FROM penstock.%I', part) INTO rows_present;
    IF rows_present <> coalesce(made.row_count, 0) THEN
        RETURN NULL;
    END IF;
    EXECUTE format('ALTER TABLE penstock.outbox_attempt DETACH PARTITION penstock.%I', part);
    EXECUTE format('DROP TABLE penstock.%I', part);
    IF rows_present > 0 THEN
        UPDATE penstock.outbox_seal AS s SET attempt_ids = NULL, row_hashes = NULL
        WHERE s.month = drop_outbox_month.month AND s.kind <> 'dropped';
        made.kind := 'dropped';
        made.month := month;
        SELECT era, last_xid, last_attempt_id INTO made.era, made.last_xid, made.last_attempt_id
        FROM penstock.outbox_seal ORDER BY seal_no DESC LIMIT 1;
        PERFORM penstock.add_outbox_seal(made);
    END IF;
    RETURN rows_present;
END $$;
