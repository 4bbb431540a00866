-- Partitions from $1 on for $2 more days, and ids from the block of day $1.
SELECT penstock.open_day($1::date + d) FROM generate_series(0, $2::integer) AS d
UNION ALL
SELECT penstock.turn_day($1::date);
