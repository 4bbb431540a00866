-- Hold an item that waits unclaimed. The head of an order key stays the head, so its followers
-- wait.
WITH withdrawn AS MATERIALIZED (
    SELECT id, lane_id, due_at, attempt, forgiven FROM penstock.withdraw(ARRAY[$1::bigint])
)
INSERT INTO penstock.held (id, held_at, lane_id, due_at, attempt, forgiven, reason)
SELECT id, coalesce($3::timestamptz, now()), lane_id, due_at, attempt, forgiven, $2 FROM withdrawn
RETURNING id;
