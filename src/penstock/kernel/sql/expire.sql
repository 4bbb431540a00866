-- End unclaimed items whose deadline has passed. Items that a worker holds are checked when
-- they are settled. Returns the heads that died, by lane.
WITH passed AS MATERIALIZED (
    SELECT not_after, item_id
    FROM penstock.deadline
    WHERE not_after <= coalesce($2::timestamptz, now())
    ORDER BY not_after
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM penstock.deadline USING passed
    WHERE deadline.not_after = passed.not_after AND deadline.item_id = passed.item_id
), withdrawn AS MATERIALIZED (
    SELECT w.*
    FROM (SELECT array_agg(item_id) AS ids FROM passed) AS p
    CROSS JOIN LATERAL penstock.withdraw(p.ids) AS w
), died AS (
    INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
    SELECT id, coalesce($2::timestamptz, now()), lane_id, attempt, forgiven, 'expired'
    FROM withdrawn
)
SELECT w.lane_id, count(*) AS items_expired,
    array_agg(w.id) FILTER (WHERE was = 'ready' AND ordering = 'per_key' AND order_key IS NOT NULL)
        AS dead_ids,
    array_agg(w.order_key)
        FILTER (WHERE was = 'ready' AND ordering = 'per_key' AND order_key IS NOT NULL) AS dead_keys
FROM withdrawn AS w JOIN penstock.lane USING (lane_id)
GROUP BY w.lane_id;
