-- A page of a lane's items, the newest first: ids are in the order of acceptance.
WITH page AS MATERIALIZED (
    SELECT item.id, item.lane_id, item.key, item.order_key, item.due_at, item.not_after,
        item.created_at
    FROM penstock.item
    WHERE item.lane_id = $1 AND ($2::bigint IS NULL OR item.id < $2)
    ORDER BY item.id DESC
    LIMIT $3
)
SELECT page.id, lane.name AS lane, page.key, page.order_key, place.state, place.reason,
    coalesce(place.due_at, page.due_at) AS due_at, page.not_after, page.created_at,
    coalesce(place.attempts, 0) AS attempts, NULL AS payload
FROM page
JOIN penstock.lane USING (lane_id)
JOIN penstock.locate(ARRAY(SELECT id FROM page)) AS place USING (id)
ORDER BY page.id DESC;
