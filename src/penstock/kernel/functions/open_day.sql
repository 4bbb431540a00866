-- Create the partitions of one day in every table that daily_table lists, unless they exist. A
-- day's ids are day << 32 onward. Each partition is created separately and attached: this
-- does not wait for transactions that only enqueue, and fails after 2 s behind other locks.
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
