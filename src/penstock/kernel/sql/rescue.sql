-- Return the items of expired leases to ready, each with a `lost` attempt. It counts, so that an
-- item that kills its workers ends dead; an item past its deadline ends dead too. Returns the heads
-- that died, by lane.
WITH expired AS MATERIALIZED (
    SELECT token
    FROM penstock.lease
    WHERE expires_at <= coalesce($2::timestamptz, now())
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM penstock.lease USING expired
    WHERE lease.token = expired.token
    RETURNING lease.*
), lost AS MATERIALIZED (
    SELECT gone.token, gone.lane_id, gone.claimed_at, coalesce($2::timestamptz, now()) AS at,
        u.id, u.attempt + 1 AS attempt, u.forgiven,
        CASE
            WHEN item.not_after <= coalesce($2::timestamptz, now()) THEN 'expired'
            WHEN u.attempt + 1 - u.forgiven >= lane.max_attempts THEN 'lost'
            END AS death,
        CASE WHEN lane.ordering = 'per_key' THEN item.order_key END AS order_key
    FROM gone
    JOIN penstock.lane USING (lane_id)
    CROSS JOIN LATERAL unnest(gone.item_ids, gone.attempts, gone.forgiven)
        AS u (id, attempt, forgiven)
    JOIN penstock.item ON item.id = u.id
), recorded AS (
    INSERT INTO penstock.attempt
        (item_id, token, claimed_at, settled_at, retry_at, lane_id, duration_ms, attempt, outcome,
         reason)
    SELECT id, token, claimed_at, at, CASE WHEN death IS NULL THEN at END, lane_id,
        least(extract(epoch FROM at - claimed_at) * 1000, 2147483647), attempt, 'lost',
        'the lease expired before the worker settled it'
    FROM lost
), again AS (
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT at, id, lane_id, attempt, forgiven FROM lost WHERE death IS NULL
), died AS (
    INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
    SELECT id, at, lane_id, attempt, forgiven, death FROM lost WHERE death IS NOT NULL
)
SELECT lane_id, count(*) AS items_lost,
    array_agg(id) FILTER (WHERE death IS NOT NULL AND order_key IS NOT NULL) AS dead_ids,
    array_agg(order_key) FILTER (WHERE death IS NOT NULL AND order_key IS NOT NULL) AS dead_keys,
    pg_notify('penstock', lane_id::text)
FROM lost
GROUP BY lane_id;
