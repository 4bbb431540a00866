-- End an unclaimed, held or dead item. A head of a key, or a dead item that blocks one, vacates it;
-- the item's slot is returned to its pool.
WITH subject AS MATERIALIZED (
    SELECT id, lane_id, order_key FROM penstock.item WHERE id = $1
), withdrawn AS MATERIALIZED (
    SELECT id, was, NULL AS reason FROM penstock.withdraw(ARRAY[$1::bigint])
), released AS (
    DELETE FROM penstock.held WHERE id = $1 RETURNING id, 'held' AS was, reason
), discarded AS (
    DELETE FROM penstock.dead WHERE id = $1 RETURNING id, 'dead' AS was, reason
), unblocked AS (
    UPDATE penstock.active_key SET blocked_by = NULL
    FROM subject, discarded
    WHERE active_key.lane_id = subject.lane_id
        AND active_key.order_key = subject.order_key
        AND active_key.blocked_by = discarded.id
    RETURNING active_key.order_key
), ended AS (
    SELECT * FROM withdrawn UNION ALL SELECT * FROM released UNION ALL SELECT * FROM discarded
), noted AS (
    INSERT INTO penstock.cancelled (id, cancelled_at, lane_id)
    SELECT ended.id, coalesce($2::timestamptz, now()), subject.lane_id FROM ended, subject
)
SELECT penstock.release_due_instant(ended.id, $2::timestamptz), ended.was, ended.reason,
    subject.lane_id, subject.order_key,
    subject.order_key IS NOT NULL AND lane.ordering = 'per_key'
        AND (ended.was IN ('ready', 'held') OR EXISTS (SELECT FROM unblocked)) AS vacates_key
FROM ended, subject JOIN penstock.lane USING (lane_id);
