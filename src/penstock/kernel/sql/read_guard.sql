-- The guard of one verb, of the lane that an item is in; no row if there is none.
SELECT lane.name, lane.owner, lane.guards ->> $2 AS pointer
FROM penstock.item JOIN penstock.lane USING (lane_id)
WHERE item.id = $1 AND lane.guards ? $2;
