-- Decide about the items of expired leases. A lease with start marks shows which items never
-- started: they return to ready as they were. The others get a `lost` attempt. If the lane holds
-- lost items, or did when they were claimed, they are held, whatever their deadline and attempts:
-- they may have been executed. Otherwise they return to ready; the attempt counts, so that an item
-- that kills its workers ends dead, and one past its deadline ends dead too. An item that was
-- claimed early is not due before its time. Returns the heads that died, by lane.
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
    SELECT gone.token, gone.lane_id, lane.name AS lane, gone.claimed_at,
        coalesce($2::timestamptz, now()) AS at,
        u.id, u.attempt + u.is_started::integer AS attempt, u.forgiven, u.is_started,
        u.is_started AND (lane.on_lost = 'hold' OR gone.started_ids IS NOT NULL) AS is_held,
        CASE
            WHEN u.is_started AND (lane.on_lost = 'hold' OR gone.started_ids IS NOT NULL) THEN NULL
            WHEN item.not_after <= coalesce($2::timestamptz, now()) THEN 'expired'
            WHEN u.is_started AND u.attempt + 1 - u.forgiven >= lane.max_attempts THEN 'lost'
            END AS death,
        CASE WHEN lane.ordering = 'per_key' THEN item.order_key END AS order_key,
        -- The claim took nothing that is due later than this; an earlier due instant is past.
        greatest(coalesce($2::timestamptz, now()), CASE WHEN lane.pre_start_buffer > interval '0' THEN (
            SELECT max(due.due_at) FROM penstock.due_instant AS due
            WHERE due.item_id = u.id AND due.due_at <= gone.claimed_at + lane.pre_start_buffer
        ) END) AS due_at
    FROM gone
    JOIN penstock.lane USING (lane_id)
    CROSS JOIN LATERAL (
        SELECT id, attempt, forgiven,
            gone.started_ids IS NULL OR id = ANY (gone.started_ids) AS is_started
        FROM unnest(gone.item_ids, gone.attempts, gone.forgiven) AS held (id, attempt, forgiven)
    ) AS u
    JOIN penstock.item ON item.id = u.id
), recorded AS (
    INSERT INTO penstock.attempt
        (item_id, token, claimed_at, settled_at, retry_at, lane_id, duration_ms, attempt, outcome,
         reason)
    SELECT id, token, claimed_at, at, CASE WHEN death IS NULL AND NOT is_held THEN due_at END, lane_id,
        least(extract(epoch FROM at - claimed_at) * 1000, 2147483647), attempt, 'lost',
        'the lease expired before the worker settled it'
    FROM lost
    WHERE is_started
), again AS (
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT due_at, id, lane_id, attempt, forgiven FROM lost WHERE death IS NULL AND NOT is_held
), noted AS (
    -- Without an attempt, this is where the new due instant is found.
    INSERT INTO penstock.moved (item_id, due_at)
    SELECT id, due_at FROM lost WHERE death IS NULL AND NOT is_started
    ON CONFLICT DO NOTHING
), held AS (
    INSERT INTO penstock.held (id, held_at, lane_id, attempt, forgiven, reason)
    SELECT id, at, lane_id, attempt, forgiven, 'lost' FROM lost WHERE is_held
), died AS (
    INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
    SELECT id, at, lane_id, attempt, forgiven, death FROM lost WHERE death IS NOT NULL
)
SELECT lane_id, lane, count(*) AS items_lost,
    array_agg(id) FILTER (WHERE death IS NOT NULL AND order_key IS NOT NULL) AS dead_ids,
    array_agg(order_key) FILTER (WHERE death IS NOT NULL AND order_key IS NOT NULL) AS dead_keys,
    pg_notify('penstock', lane_id::text)
FROM lost
GROUP BY lane_id, lane;
