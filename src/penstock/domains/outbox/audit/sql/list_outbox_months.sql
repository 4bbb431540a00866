-- The months of the archive that ended at least $2 months ago, the oldest first.
SELECT to_date(substring(relname FROM '\d{6}$'), 'YYYYMM') AS month
FROM pg_inherits
JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'penstock.outbox_attempt'::regclass
    AND relname ~ '^outbox_attempt_\d{6}$'
    AND to_date(substring(relname FROM '\d{6}$'), 'YYYYMM') + make_interval(months => $2::integer + 1)
        <= date_trunc('month', coalesce($1::timestamptz, now()) AT TIME ZONE 'UTC')
ORDER BY month;
