-- A page of a lane's items, the newest first: ids are in the order of acceptance. The filters $4
-- (state), $5 (order key), $6 and $7 (accepted from, until) are NULL for all. Up to $8 items with
-- an id below $2 are looked at, so a page may be short; looked_until then continues it. It is NULL
-- at the end, which is also where items are older than $6, with a day for long transactions.
-- At least one row is returned. A part of a UNION that does not apply is not executed. BETWEEN
-- and not =: only the index by order key then has the order.
WITH listed AS MATERIALIZED (
    (SELECT id FROM penstock.held
        WHERE $4 = 'held' AND lane_id = $1 AND id < $2
        ORDER BY id DESC
        LIMIT $8)
    UNION ALL
    (SELECT id FROM penstock.dead
        WHERE $4 = 'dead' AND lane_id = $1 AND id < $2
        ORDER BY id DESC
        LIMIT $8)
    UNION ALL
    (SELECT leased.id
        FROM penstock.lease CROSS JOIN LATERAL unnest(lease.item_ids) AS leased (id)
        WHERE $4 = 'leased' AND lease.lane_id = $1 AND leased.id < $2
        ORDER BY leased.id DESC
        LIMIT $8)
), looked_at AS MATERIALIZED (
    -- Bodies of listed items are looked up one by one, as in claim.
    SELECT item.*
    FROM listed
    CROSS JOIN LATERAL (
        SELECT id, key, order_key, due_at, not_after, created_at, limit_keys
        FROM penstock.item
        WHERE item.id = listed.id
        LIMIT 1
    ) AS item
    UNION ALL
    (SELECT id, key, order_key, due_at, not_after, created_at, limit_keys
        FROM penstock.item
        WHERE coalesce($4, '') NOT IN ('held', 'dead', 'leased') AND $5::text IS NOT NULL
            AND lane_id = $1 AND order_key BETWEEN $5 AND $5 AND id < $2
        ORDER BY order_key DESC, id DESC
        LIMIT $8)
    UNION ALL
    (SELECT id, key, order_key, due_at, not_after, created_at, limit_keys
        FROM penstock.item
        WHERE coalesce($4, '') NOT IN ('held', 'dead', 'leased') AND $5::text IS NULL
            -- CASE hides the lane from the planner: without statistics of a new day it would
            -- expect few items of it, and scan all.
            AND CASE WHEN lane_id = $1 THEN true END AND id < $2
        ORDER BY id DESC
        LIMIT $8)
), page AS MATERIALIZED (
    SELECT looked_at.id, looked_at.key, looked_at.order_key, looked_at.not_after,
        looked_at.limit_keys, looked_at.created_at, place.state, place.reason,
        coalesce(place.due_at, looked_at.due_at) AS due_at, coalesce(place.attempts, 0) AS attempts
    FROM looked_at
    JOIN penstock.locate(ARRAY(SELECT id FROM looked_at)) AS place USING (id)
    WHERE ($4::text IS NULL OR place.state = $4)
        AND ($5::text IS NULL OR looked_at.order_key = $5)
        AND ($6::timestamptz IS NULL OR looked_at.created_at >= $6)
        AND ($7::timestamptz IS NULL OR looked_at.created_at < $7)
    ORDER BY looked_at.id DESC
    LIMIT $3
), last AS (
    SELECT id, created_at FROM looked_at ORDER BY id LIMIT 1
), looked AS (
    SELECT (
        SELECT last.id FROM last
        WHERE (SELECT count(*) FROM looked_at) >= $8
            AND ($6::timestamptz IS NULL OR last.created_at >= $6 - interval '1 day')
    ) AS until
)
SELECT page.id, lane.name AS lane, page.key, page.order_key, page.state, page.reason, page.due_at,
    page.not_after, page.limit_keys, page.created_at, page.attempts, NULL AS payload,
    looked.until AS looked_until
FROM looked
JOIN penstock.lane ON lane.lane_id = $1
LEFT JOIN page ON true
ORDER BY page.id DESC;
