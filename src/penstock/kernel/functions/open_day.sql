-- Create the partitions of one day in every table that daily_table lists, unless they exist, and
-- the day's row for retention. A day's ids are day << 32 onward. Each partition is created
-- separately and attached: this does not wait for transactions that only enqueue, and fails after
-- 2 s behind other locks. Attaching copies triggers for rows; those for TRUNCATE are copied here,
-- also to a day that was open before its table had one.
-- Runs as its owner, because only the owner of a table may attach to it.
CREATE OR REPLACE FUNCTION penstock.open_day(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    low bigint := (day - date '1970-01-01')::bigint << 32;
    high bigint := (day + 1 - date '1970-01-01')::bigint << 32;
    suffix text := to_char(day, 'YYYYMMDD');
    parent text;
    guard text;
    called text;
BEGIN
    IF NOT has_table_privilege(session_user, 'penstock.item', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'to open a day needs INSERT on penstock.item';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock.open_day', 0));
    PERFORM set_config('lock_timeout', '2s', true);
    FOR parent IN
        SELECT name FROM penstock.daily_table
        WHERE to_regclass('penstock.' || quote_ident(name || '_' || suffix)) IS NULL
    LOOP
        EXECUTE format(
            'CREATE TABLE penstock.%1$I (LIKE penstock.%2$I INCLUDING ALL)',
            parent || '_' || suffix, parent);
        EXECUTE format(
            'ALTER TABLE penstock.%2$I ATTACH PARTITION penstock.%1$I FOR VALUES FROM (%3$s) TO (%4$s)',
            parent || '_' || suffix, parent, low, high);
    END LOOP;
    FOR parent, guard, called IN
        SELECT d.name, t.tgname, t.tgfoid::regproc::text
        FROM penstock.daily_table AS d
        JOIN pg_trigger AS t ON t.tgrelid = ('penstock.' || quote_ident(d.name))::regclass
        WHERE t.tgtype & 32 <> 0  -- The bit of TRUNCATE.
            AND NOT EXISTS (
                SELECT FROM pg_trigger AS own
                WHERE own.tgrelid = ('penstock.' || quote_ident(d.name || '_' || suffix))::regclass
                    AND own.tgname = t.tgname)
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE TRUNCATE ON penstock.%I '
            'FOR EACH STATEMENT EXECUTE FUNCTION %s()',
            guard, parent || '_' || suffix, called);
    END LOOP;
    -- No retention is shorter than a day.
    INSERT INTO penstock.history_day (day, look_at)
    VALUES (open_day.day, (open_day.day + 2)::timestamp AT TIME ZONE 'UTC')
    ON CONFLICT DO NOTHING;
END $$;
