-- Find the order keys that a dead item blocks, without a walk over those that are active.
CREATE INDEX active_key_blocked ON penstock.active_key (lane_id, order_key)
    WHERE blocked_by IS NOT NULL;
