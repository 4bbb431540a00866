-- Remove one month of the archive, and return how many rows that were, or NULL if it has to stay: a row
-- of it is not sealed, an instruction with a row in it is not finished (what was tried before decides
-- whether it may be sent), or rows of it are in the default partition. Its seals keep their hashes,
-- and the chain gets an entry about the removal.
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
    THEN
        RETURN NULL;
    END IF;
    EXECUTE format('LOCK TABLE penstock.%I IN ACCESS EXCLUSIVE MODE', part);
    EXECUTE format('SELECT count(*) FROM penstock.%I', part) INTO rows_present;
    SELECT sum(row_count), (array_agg(hash ORDER BY seal_no DESC))[1]
    INTO made.row_count, made.rows_hash
    FROM penstock.outbox_seal AS s
    WHERE s.month = drop_outbox_month.month AND s.kind <> 'dropped';
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
