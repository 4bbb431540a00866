-- End the head of an order key as dead, so that the next item of the key is tried; a dead head that
-- blocks its key stays dead and blocks no longer. Returns no row if the item is not a head.
WITH subject AS MATERIALIZED (
    SELECT item.id, item.lane_id, item.order_key
    FROM penstock.item JOIN penstock.lane USING (lane_id)
    WHERE item.id = $1 AND lane.ordering = 'per_key' AND item.order_key IS NOT NULL
), withdrawn AS MATERIALIZED (
    SELECT w.id, w.due_at, w.attempt, w.forgiven, w.was
    FROM subject CROSS JOIN LATERAL penstock.withdraw(ARRAY[subject.id]) AS w
), released AS (
    DELETE FROM penstock.held USING subject WHERE held.id = subject.id
    RETURNING held.id, held.due_at, held.attempt, held.forgiven, 'held' AS was
), unblocked AS (
    UPDATE penstock.active_key SET blocked_by = NULL
    FROM subject
    WHERE active_key.lane_id = subject.lane_id
        AND active_key.order_key = subject.order_key
        AND active_key.blocked_by = subject.id
    RETURNING subject.id
), died AS (
    INSERT INTO penstock.dead (id, died_at, lane_id, due_at, attempt, forgiven, reason)
    SELECT ended.id, coalesce($3::timestamptz, now()), subject.lane_id, ended.due_at,
        ended.attempt, ended.forgiven, $2
    FROM (SELECT * FROM withdrawn UNION ALL SELECT * FROM released) AS ended
    CROSS JOIN subject
)
SELECT subject.lane_id, subject.order_key,
    coalesce((SELECT was FROM withdrawn), (SELECT was FROM released), 'dead') AS was
FROM subject
WHERE EXISTS (SELECT FROM withdrawn) OR EXISTS (SELECT FROM released) OR EXISTS (SELECT FROM unblocked);
