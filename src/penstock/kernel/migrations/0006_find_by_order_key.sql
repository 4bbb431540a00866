-- Find the items of one order key: the head that a follower waits for is the latest of them that
-- has not ended. Partial, so that items without an order key cost nothing more.
CREATE INDEX item_by_order_key ON penstock.item (lane_id, order_key, id)
    WHERE order_key IS NOT NULL;
