-- Create the partitions of today and of $2 more days, and advance ids to the block of today.
WITH today AS MATERIALIZED (
    SELECT (coalesce($1::timestamptz, now()) AT TIME ZONE 'UTC')::date AS day
)
SELECT penstock.open_day(today.day + d) FROM today, generate_series(0, $2::integer) AS d
UNION ALL
SELECT penstock.turn_day(today.day) FROM today;
