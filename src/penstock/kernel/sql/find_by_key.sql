-- The item that a key of a lane stands for.
SELECT item_id FROM penstock.idempotency WHERE lane_id = $1 AND key = $2;
