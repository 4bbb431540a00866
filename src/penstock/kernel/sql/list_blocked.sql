-- Order keys whose followers wait behind a dead or held head, of all ordered lanes; $1 as in
-- blocked_keys.
SELECT lane.name AS lane, blocked.order_key, blocked.head_id, blocked.head_state,
    blocked.follower_id, blocked.due_at
FROM penstock.lane
CROSS JOIN LATERAL penstock.blocked_keys(lane.lane_id, $1) AS blocked
WHERE lane.ordering = 'per_key'
ORDER BY lane.name, blocked.due_at, blocked.follower_id;
