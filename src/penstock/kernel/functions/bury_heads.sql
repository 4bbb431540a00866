-- Handle heads of order keys that have died: block their keys, or promote the next item of each, as
-- the lane's policy says.
CREATE OR REPLACE FUNCTION penstock.bury_heads(in_lane integer, ids bigint[], order_keys text[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT on_dead_head FROM penstock.lane WHERE lane_id = in_lane) = 'block' THEN
        UPDATE penstock.active_key SET blocked_by = dead.id
        FROM unnest(ids, order_keys) AS dead (id, order_key)
        WHERE active_key.lane_id = in_lane AND active_key.order_key = dead.order_key;
    ELSE
        PERFORM penstock.promote(in_lane, order_keys);
    END IF;
END $$;
