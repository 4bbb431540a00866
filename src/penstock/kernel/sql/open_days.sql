-- Create partitions from day $1 for $2 more days, and advance ids to the block of day $1.
SELECT penstock.open_day($1::date + d) FROM generate_series(0, $2::integer) AS d
UNION ALL
SELECT penstock.turn_day($1::date);
