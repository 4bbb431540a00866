-- Other owners' history can live in days, too: a partitioned table that is listed here gets a
-- partition for every day. Its ids come from penstock.item_id, so that a range of them is a day.

CREATE TABLE penstock.daily_table (
    name text PRIMARY KEY
);
INSERT INTO penstock.daily_table (name) VALUES ('item'), ('attempt');

-- As before, for all tables that are listed.
CREATE OR REPLACE FUNCTION penstock.open_day(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    low bigint := (day - date '1970-01-01')::bigint << 32;
    high bigint := (day + 1 - date '1970-01-01')::bigint << 32;
    suffix text := to_char(day, 'YYYYMMDD');
    parent text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock.open_day', 0));
    PERFORM set_config('lock_timeout', '2s', true);
    FOR parent IN
        SELECT name FROM penstock.daily_table
        WHERE to_regclass('penstock.' || name || '_' || suffix) IS NULL
    LOOP
        EXECUTE format(
            'CREATE TABLE penstock.%1$s_%2$s (LIKE penstock.%1$s INCLUDING ALL)', parent, suffix);
        EXECUTE format(
            'ALTER TABLE penstock.%1$s ATTACH PARTITION penstock.%1$s_%2$s FOR VALUES FROM (%3$s) TO (%4$s)',
            parent, suffix, low, high);
    END LOOP;
END $$;

-- List a table and open the days that there are already.
CREATE FUNCTION penstock.add_daily_table(added text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO penstock.daily_table (name) VALUES (added);
    SELECT penstock.open_day(to_date(substring(relname FROM '\d{8}$'), 'YYYYMMDD'))
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'penstock.item'::regclass AND relname ~ '^item_\d{8}$';
$$;
