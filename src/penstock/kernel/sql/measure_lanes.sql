-- Depths for the metrics. Every count stops at $1 rows, so that no scrape scans a big table.
-- Items behind a dead or held head wait as well, and so do heads that are snoozed again and again;
-- $2 limits the heads that are looked at.
-- ORDER BY forces the index: otherwise a lane with few rows is searched among all others.
SELECT lane.name AS lane,
    waiting.ready,
    waiting.due,
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
    coalesce(extract(epoch FROM now() - least((
        SELECT due_at FROM penstock.ready
        WHERE lane_id = lane.lane_id AND due_at <= now()
        ORDER BY due_at
        LIMIT 1), blocked.due_at, CASE WHEN lane.ordering = 'per_key'
            THEN penstock.oldest_snoozed(lane.lane_id, $2) END)), 0)::float8 AS oldest_due_seconds,
    blocked.keys AS blocked_keys,
    expired.leases AS expired_leases,
    expired.items AS expired_items
FROM penstock.lane
CROSS JOIN LATERAL (
    SELECT count(*) AS ready, count(*) FILTER (WHERE due_at <= now()) AS due
    FROM (
        SELECT due_at FROM penstock.ready WHERE lane_id = lane.lane_id
        ORDER BY due_at LIMIT $1) AS r
) AS waiting
CROSS JOIN LATERAL (
    SELECT count(*) AS leases, coalesce(sum(cardinality(item_ids)), 0) AS items
    FROM penstock.lease
    WHERE lane_id = lane.lane_id AND expires_at <= now()
) AS expired
CROSS JOIN LATERAL (
    SELECT count(*) AS keys, min(due_at) FILTER (WHERE due_at <= now()) AS due_at
    FROM penstock.blocked_keys(lane.lane_id, $2)
    WHERE lane.ordering = 'per_key'
) AS blocked
ORDER BY lane.name;
