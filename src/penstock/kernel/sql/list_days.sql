-- The days that have a partition and are over.
SELECT to_date(substring(relname FROM 'item_(\d{8})$'), 'YYYYMMDD') AS day
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'penstock.item'::regclass
    AND relname ~ '^item_\d{8}$'
    AND to_date(substring(relname FROM 'item_(\d{8})$'), 'YYYYMMDD') < $1::date
ORDER BY day;
