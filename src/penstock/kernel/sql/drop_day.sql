-- Drop one day of history unless the retention of a lane still covers it.
SELECT penstock.drop_day($1::date, $2::timestamptz);
