-- Look at the days that are to be looked at now only after $2.
UPDATE penstock.history_day
SET look_at = coalesce($1::timestamptz, now()) + $2::interval
WHERE look_at <= coalesce($1::timestamptz, now());
