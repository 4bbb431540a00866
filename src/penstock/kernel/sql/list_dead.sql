-- A page of dead letters in the order of their ids.
SELECT dead.id, lane.name AS lane, item.key, item.order_key, dead.died_at, dead.attempt AS attempts,
    dead.reason
FROM penstock.dead JOIN penstock.lane USING (lane_id) JOIN penstock.item ON item.id = dead.id
WHERE ($1::integer IS NULL OR dead.lane_id = $1) AND dead.id > $2
ORDER BY dead.id
LIMIT $3;
