-- Depths for the metrics. Every count stops at $1 rows, so that no scrape scans a big table.
-- ORDER BY forces the index: otherwise a lane with few rows is searched among all others.
SELECT lane.name AS lane,
    (SELECT count(*) FROM (
        SELECT FROM penstock.ready WHERE lane_id = lane.lane_id
        ORDER BY due_at LIMIT $1) AS r) AS ready,
    (SELECT count(*) FROM (
        SELECT FROM penstock.parked WHERE lane_id = lane.lane_id
        ORDER BY order_key LIMIT $1) AS p) AS parked,
    (SELECT coalesce(sum(cardinality(item_ids)), 0)
        FROM penstock.lease WHERE lane_id = lane.lane_id) AS leased,
    (SELECT count(*) FROM (
        SELECT FROM penstock.held WHERE lane_id = lane.lane_id
        ORDER BY id LIMIT $1) AS h) AS held,
    (SELECT count(*) FROM (
        SELECT FROM penstock.dead WHERE lane_id = lane.lane_id
        ORDER BY id LIMIT $1) AS d) AS dead,
    coalesce(extract(epoch FROM now() - (
        SELECT due_at FROM penstock.ready
        WHERE lane_id = lane.lane_id AND due_at <= now()
        ORDER BY due_at
        LIMIT 1)), 0)::float8 AS oldest_due_seconds,
    (SELECT count(*) FROM penstock.lease
        WHERE lane_id = lane.lane_id AND expires_at <= now()) AS expired_leases
FROM penstock.lane
ORDER BY lane.name;
