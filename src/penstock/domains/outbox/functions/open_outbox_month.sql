-- Create the partition of one month of the archive; return whether it was created. Rows of the month that
-- are in the default partition, because none was there when they were written, move with it: the
-- default partition is replaced, since its triggers refuse to delete.
-- Runs as its owner, because only the owner of a table may attach to it.
CREATE OR REPLACE FUNCTION penstock.open_outbox_month(month date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    low timestamptz := month::timestamp AT TIME ZONE 'UTC';
    high timestamptz := (month + interval '1 month')::timestamp AT TIME ZONE 'UTC';
    part text := 'outbox_attempt_' || to_char(month, 'YYYYMM');
    moves boolean;
    made text;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.outbox_attempt', 'INSERT') THEN
        RAISE insufficient_privilege
            USING MESSAGE = 'to open a month needs INSERT on penstock.outbox_attempt';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock.open_outbox_month', 0));
    PERFORM set_config('lock_timeout', '2s', true);
    IF to_regclass('penstock.' || part) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- No row may arrive in the default partition between the look and the attachment. The archive first,
    -- as all lock it that read or write: the other way round would be a deadlock with them.
    LOCK TABLE ONLY penstock.outbox_attempt IN ACCESS EXCLUSIVE MODE;
    LOCK TABLE penstock.outbox_attempt_kept IN ACCESS EXCLUSIVE MODE;
    -- What another session has created is known for certain behind the lock of a table.
    IF to_regclass('penstock.' || part) IS NOT NULL THEN
        RETURN false;
    END IF;
    moves := EXISTS (
        SELECT FROM penstock.outbox_attempt_kept WHERE created_at >= low AND created_at < high);
    IF moves THEN
        ALTER TABLE penstock.outbox_attempt DETACH PARTITION penstock.outbox_attempt_kept;
        ALTER TABLE penstock.outbox_attempt_kept RENAME TO outbox_attempt_moved;
    END IF;
    EXECUTE format('CREATE TABLE penstock.%I (LIKE penstock.outbox_attempt INCLUDING ALL)', part);
    EXECUTE format(
        'ALTER TABLE penstock.outbox_attempt ATTACH PARTITION penstock.%I FOR VALUES FROM (%L) TO (%L)',
        part, low, high);
    IF moves THEN
        CREATE TABLE penstock.outbox_attempt_kept (LIKE penstock.outbox_attempt INCLUDING ALL);
        ALTER TABLE penstock.outbox_attempt
            ATTACH PARTITION penstock.outbox_attempt_kept DEFAULT;
        INSERT INTO penstock.outbox_attempt SELECT * FROM penstock.outbox_attempt_moved;
        DROP TABLE penstock.outbox_attempt_moved;
    END IF;
    -- Attaching copies triggers for rows, but not those for TRUNCATE.
    FOREACH made IN ARRAY CASE WHEN moves THEN ARRAY[part, 'outbox_attempt_kept'] ELSE ARRAY[part] END
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE TRUNCATE ON penstock.%I '
            'FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change()',
            made || '_is_not_truncated', made);
    END LOOP;
    RETURN true;
END $$;
