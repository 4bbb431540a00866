-- End a held item as dead; it can be replayed.
WITH resolved AS (
    DELETE FROM penstock.held WHERE id = $1 RETURNING id, lane_id, due_at, attempt, forgiven, reason
), died AS (
    INSERT INTO penstock.dead (id, died_at, lane_id, due_at, attempt, forgiven, reason)
    SELECT id, coalesce($3::timestamptz, now()), lane_id, due_at, attempt, forgiven, $2
    FROM resolved
)
SELECT resolved.lane_id, resolved.reason,
    CASE WHEN lane.ordering = 'per_key' THEN item.order_key END AS order_key
FROM resolved JOIN penstock.lane USING (lane_id) JOIN penstock.item ON item.id = resolved.id;
