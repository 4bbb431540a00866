-- A page of dead letters in the order of their ids; bodies are looked up one by one, as in claim.
WITH page AS MATERIALIZED (
    SELECT id, lane_id, died_at, attempt, reason
    FROM penstock.dead
    WHERE ($1::integer IS NULL OR lane_id = $1) AND id > $2
    ORDER BY id
    LIMIT $3
)
SELECT page.id, lane.name AS lane, item.key, item.order_key, page.died_at,
    page.attempt AS attempts, page.reason
FROM page
JOIN penstock.lane USING (lane_id)
CROSS JOIN LATERAL (
    SELECT key, order_key FROM penstock.item WHERE item.id = page.id LIMIT 1
) AS item
ORDER BY page.id;
