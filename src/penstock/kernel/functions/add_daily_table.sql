-- Give a table of a domain a partition per day, and create those of the days that are open. The
-- table is partitioned by a range of numbers that come from penstock.item_id. With an item_column,
-- which is the partition key, its rows belong to items and are deleted with them. Stable interface:
-- migrations of domains call it.
CREATE OR REPLACE FUNCTION penstock.add_daily_table(added text, item_column text DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO penstock.daily_table (name, item_column) VALUES (added, add_daily_table.item_column);
    SELECT penstock.open_day(to_date(substring(relname FROM '\d{8}$'), 'YYYYMMDD'))
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'penstock.item'::regclass AND relname ~ '^item_\d{8}$';
$$;
