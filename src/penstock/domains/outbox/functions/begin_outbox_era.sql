-- Go on with the chain in another cluster of PostgreSQL, where numbers of transactions start again:
-- new rows belong to the next era, and rows that have no seal yet are sealed together. Returns how
-- many these are. Takes the archive exclusively for a moment, so that no row is between the two.
-- Runs as its owner, because only the owner may change a default.
CREATE OR REPLACE FUNCTION penstock.begin_outbox_era() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_encoding = 'UTF8'
AS $$
DECLARE
    next_era smallint := (SELECT max(era) + 1 FROM penstock.outbox_era);
    head penstock.outbox_seal;
    made penstock.outbox_seal;
    sealed integer := 0;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.outbox_seal', 'INSERT') THEN
        RAISE insufficient_privilege
            USING MESSAGE = 'to begin an era needs INSERT on penstock.outbox_seal';
    END IF;
    IF (SELECT system_id FROM penstock.outbox_era ORDER BY era DESC LIMIT 1)
        = (SELECT system_identifier FROM pg_control_system())
    THEN
        RETURN 0;
    END IF;
    PERFORM set_config('lock_timeout', '2s', true);
    EXECUTE format('ALTER TABLE penstock.outbox_attempt ALTER COLUMN era SET DEFAULT %s', next_era);
    INSERT INTO penstock.outbox_era (era, system_id, began_at)
    SELECT next_era, system_identifier, now() FROM pg_control_system();

    SELECT * INTO head FROM penstock.outbox_seal ORDER BY seal_no DESC LIMIT 1;
    made.kind := 'restored';
    made.era := coalesce(head.era, next_era - 1);
    made.last_xid := coalesce(head.last_xid, '0');
    made.last_attempt_id :=
        coalesce(head.last_attempt_id, '00000000-0000-0000-0000-000000000000');
    FOR made.month, made.row_count, made.attempt_ids, made.row_hashes IN
        SELECT date_trunc('month', a.created_at AT TIME ZONE 'UTC')::date, count(*),
            array_agg(a.attempt_id ORDER BY a.created_at, a.attempt_id),
            array_agg(penstock.outbox_attempt_hash(a, i) ORDER BY a.created_at, a.attempt_id)
        FROM penstock.outbox_attempt AS a
        LEFT JOIN penstock.outbox_instruction AS i USING (outbox_id)
        WHERE a.attempt_id NOT IN (
            SELECT unnest(attempt_ids) FROM penstock.outbox_seal WHERE attempt_ids IS NOT NULL)
        GROUP BY 1
        ORDER BY 1
    LOOP
        made.rows_hash := penstock.outbox_rows_hash(made.attempt_ids, made.row_hashes);
        PERFORM penstock.add_outbox_seal(made);
        sealed := sealed + made.row_count;
    END LOOP;
    RETURN sealed;
END $$;
