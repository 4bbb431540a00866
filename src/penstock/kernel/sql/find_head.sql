-- The head of an order key. A dead head that blocks its key is named there. Otherwise it is close
-- to the first follower in the order of ids: items before it have ended, and only a replayed item
-- can be parked before a head that came after it. So $3 items on each side are looked up.
-- BETWEEN and not =: only the index by order key then has the order, and the planner cannot walk
-- over other keys by id.
WITH key AS MATERIALIZED (
    SELECT active_key.blocked_by, (
        SELECT id FROM penstock.parked
        WHERE lane_id = $1 AND order_key = $2
        ORDER BY position
        LIMIT 1
    ) AS follower_id
    FROM penstock.active_key
    WHERE lane_id = $1 AND order_key = $2
), candidate AS MATERIALIZED (
    (SELECT id FROM penstock.item
        WHERE lane_id = $1 AND order_key BETWEEN $2 AND $2 AND id < (SELECT follower_id FROM key)
        ORDER BY order_key DESC, id DESC
        LIMIT $3)
    UNION ALL
    (SELECT id FROM penstock.item
        WHERE lane_id = $1 AND order_key BETWEEN $2 AND $2 AND id > (SELECT follower_id FROM key)
        ORDER BY order_key, id
        LIMIT $3)
), leased AS MATERIALIZED (
    SELECT unnest(item_ids) AS id
    FROM penstock.lease
    WHERE lane_id = $1 AND item_ids && ARRAY(SELECT id FROM candidate)
)
SELECT blocked_by AS id FROM key WHERE blocked_by IS NOT NULL
UNION ALL
SELECT id FROM candidate
WHERE (SELECT blocked_by FROM key) IS NULL AND (
    id = ANY (ARRAY(SELECT id FROM leased))
    OR EXISTS (SELECT FROM penstock.held WHERE held.id = candidate.id LIMIT 1)
    OR EXISTS (
        SELECT FROM penstock.due_instant AS instant
        CROSS JOIN LATERAL (
            SELECT FROM penstock.ready
            WHERE lane_id = $1 AND due_at = instant.due_at AND id = candidate.id
            LIMIT 1
        ) AS found
        WHERE instant.item_id = candidate.id
        OFFSET 0
    )
)
LIMIT 1;
