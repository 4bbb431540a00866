-- Note that a worker runs. The row may be gone, if the worker was suspended for a day.
INSERT INTO penstock.worker (name, host, pid, version, lanes, started_at, seen_at)
SELECT $1, $2, $3, $4, $5, at.at, at.at
FROM (SELECT coalesce($6::timestamptz, clock_timestamp()) AS at) AS at
ON CONFLICT (name) DO UPDATE SET lanes = excluded.lanes, seen_at = excluded.seen_at;
