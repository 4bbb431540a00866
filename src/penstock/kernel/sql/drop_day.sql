-- Drop one day of history unless its lanes still have to keep it.
SELECT penstock.drop_day($1::date, $2::timestamptz);
