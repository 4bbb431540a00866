-- One item with its state and payload.
SELECT item.id, lane.name AS lane, item.key, item.order_key, place.state, place.reason,
    coalesce(place.due_at, item.due_at) AS due_at, item.not_after, item.limit_keys,
    item.created_at, coalesce(place.attempts, 0) AS attempts, item.payload
FROM penstock.item
JOIN penstock.lane USING (lane_id)
JOIN penstock.locate(ARRAY[$1::bigint]) AS place USING (id)
WHERE item.id = $1;
