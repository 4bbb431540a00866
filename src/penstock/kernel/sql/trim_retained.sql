-- Examine up to $1 items that were kept once, and whose retention is over since then.
WITH due AS MATERIALIZED (
    SELECT found.id
    FROM penstock.lane
    CROSS JOIN LATERAL (
        SELECT id FROM penstock.retained_item
        WHERE lane_id = lane.lane_id
            AND from_at <= coalesce($2::timestamptz, now()) - lane.retention
        ORDER BY from_at
        LIMIT $1
        FOR UPDATE SKIP LOCKED
    ) AS found
    LIMIT $1
)
SELECT count(*) AS examined,
    penstock.trim_items(array_agg(id), coalesce($2::timestamptz, now())) AS items
FROM due
HAVING count(*) > 0;
