-- The days that retention has to look at, the oldest first.
SELECT day
FROM penstock.history_day
WHERE look_at <= coalesce($1::timestamptz, now())
ORDER BY day;
