-- Put the next follower of each key into ready; close the keys that have none. The caller's
-- transaction has just ended these keys' heads, so no other transaction promotes them. Returns how
-- many keys could not be closed yet.
CREATE OR REPLACE FUNCTION penstock.promote(in_lane integer, keys text[]) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    promoted text[] := penstock.promote_followers(in_lane, keys);
    unpromoted text[] := ARRAY(SELECT unnest(keys) EXCEPT SELECT unnest(promoted));
    locked text[];
BEGIN
    IF cardinality(unpromoted) = 0 THEN
        RETURN 0;
    END IF;
    -- Lock in one statement and read again in the next: a follower that was parked in between is
    -- visible then. A key that a producer has locked is tried again later, without waiting.
    WITH found AS (
        SELECT order_key FROM penstock.active_key
        WHERE lane_id = in_lane AND order_key = ANY (unpromoted)
        FOR UPDATE SKIP LOCKED
    )
    SELECT coalesce(array_agg(order_key), '{}') INTO locked FROM found;
    promoted := penstock.promote_followers(in_lane, locked);
    DELETE FROM penstock.active_key
    WHERE lane_id = in_lane
        AND order_key = ANY (ARRAY(SELECT unnest(locked) EXCEPT SELECT unnest(promoted)));
    INSERT INTO penstock.vacated_key (lane_id, order_key)
    SELECT in_lane, k FROM (SELECT unnest(unpromoted) EXCEPT SELECT unnest(locked)) AS missed (k)
    ON CONFLICT DO NOTHING;
    RETURN cardinality(unpromoted) - cardinality(locked);
END $$;
