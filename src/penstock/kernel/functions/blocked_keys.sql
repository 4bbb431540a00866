-- Return the order keys of a lane whose head is dead or held while followers wait, with the first
-- follower of each. Up to `heads_max` dead heads and as many held items are looked at.
CREATE OR REPLACE FUNCTION penstock.blocked_keys(in_lane integer, heads_max integer)
RETURNS TABLE (
    order_key text, head_id bigint, head_state text, follower_id bigint, due_at timestamptz
)
LANGUAGE sql STABLE
-- Heads are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    WITH dead_head AS MATERIALIZED (
        SELECT active_key.order_key, active_key.blocked_by AS id
        FROM penstock.active_key
        WHERE lane_id = in_lane AND blocked_by IS NOT NULL
        ORDER BY active_key.order_key
        LIMIT heads_max
    ), held_head AS MATERIALIZED (
        SELECT id FROM penstock.held WHERE lane_id = in_lane ORDER BY id LIMIT heads_max
    )
    SELECT head.order_key, head.id, head.state, follower.id, follower.due_at
    FROM (
        SELECT dead_head.order_key, dead_head.id, 'dead' AS state FROM dead_head
        UNION ALL
        SELECT item.order_key, held_head.id, 'held'
        FROM held_head
        CROSS JOIN LATERAL (
            SELECT item.order_key FROM penstock.item WHERE item.id = held_head.id LIMIT 1
        ) AS item
    ) AS head
    CROSS JOIN LATERAL (
        SELECT parked.id, parked.due_at FROM penstock.parked
        WHERE parked.lane_id = in_lane AND parked.order_key = head.order_key
        ORDER BY parked.position
        LIMIT 1
    ) AS follower
$$;
