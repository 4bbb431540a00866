-- Move the first parked item of each key to ready and return the keys that had one.
CREATE OR REPLACE FUNCTION penstock.promote_followers(in_lane integer, keys text[]) RETURNS text[]
LANGUAGE sql AS $$
    WITH next AS MATERIALIZED (
        SELECT k.order_key, follower.position
        FROM unnest(keys) AS k (order_key)
        CROSS JOIN LATERAL (
            SELECT position FROM penstock.parked
            WHERE lane_id = in_lane AND order_key = k.order_key
            ORDER BY position
            LIMIT 1
        ) AS follower
    ), moved AS (
        DELETE FROM penstock.parked USING next
        WHERE parked.lane_id = in_lane
            AND parked.order_key = next.order_key
            AND parked.position = next.position
        RETURNING parked.*
    ), readied AS (
        INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
        SELECT due_at, id, lane_id, attempt, forgiven FROM moved
    )
    SELECT coalesce(array_agg(order_key), '{}') FROM moved
$$;
