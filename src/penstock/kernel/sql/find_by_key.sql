-- The item with this key in the lane.
SELECT item_id FROM penstock.idempotency WHERE lane_id = $1 AND key = $2;
