-- The workers of one lane, or all of them; $2 is how long ago a live one was seen at most.
SELECT name, host, pid, version, lanes, started_at, seen_at,
    seen_at > coalesce($3::timestamptz, clock_timestamp()) - $2::interval AS is_alive
FROM penstock.worker
WHERE $1::text IS NULL OR $1 = ANY (lanes)
ORDER BY started_at, name;
