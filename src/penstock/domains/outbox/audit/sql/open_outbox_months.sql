-- Create the partitions of this month and of $2 more; one row for each that was created.
WITH this AS MATERIALIZED (
    SELECT date_trunc('month', coalesce($1::timestamptz, now()) AT TIME ZONE 'UTC') AS month
)
SELECT opened.month
FROM this
CROSS JOIN LATERAL (
    SELECT (this.month + make_interval(months => ahead))::date AS month
    FROM generate_series(0, $2::integer) AS ahead
) AS opened
WHERE penstock.open_outbox_month(opened.month);
