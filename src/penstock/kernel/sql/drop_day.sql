-- Drop a day of history, or note which lanes are to be trimmed from it, or neither.
SELECT penstock.drop_day($1::date, coalesce($2::timestamptz, now()));
