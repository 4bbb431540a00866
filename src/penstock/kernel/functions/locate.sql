-- Return the state of items. The tables exclude each other, so an item has one row.
CREATE OR REPLACE FUNCTION penstock.locate(ids bigint[])
RETURNS TABLE (id bigint, state text, due_at timestamptz, reason text, attempts integer)
LANGUAGE sql STABLE
-- A few ids are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    WITH subject AS MATERIALIZED (
        SELECT id, lane_id, order_key FROM penstock.item WHERE id = ANY (ids)
    )
    SELECT subject.id, CASE WHEN ready.due_at > now() THEN 'scheduled' ELSE 'ready' END,
        ready.due_at, NULL, ready.attempt
    FROM subject
    CROSS JOIN LATERAL (
        SELECT DISTINCT due_at FROM penstock.due_instant WHERE item_id = subject.id
    ) AS instant
    CROSS JOIN LATERAL (
        SELECT due_at, attempt FROM penstock.ready
        WHERE lane_id = subject.lane_id AND due_at = instant.due_at AND id = subject.id
        LIMIT 1
    ) AS ready
    UNION ALL
    SELECT subject.id, 'parked', parked.due_at, NULL, parked.attempt
    FROM subject JOIN penstock.parked USING (lane_id, order_key, id)
    UNION ALL
    SELECT leased.id, 'leased', NULL, NULL, leased.attempt
    FROM penstock.lease
    CROSS JOIN LATERAL unnest(lease.item_ids, lease.attempts) AS leased (id, attempt)
    WHERE leased.id = ANY (ids)
    UNION ALL
    SELECT held.id, 'held', held.due_at, held.reason, held.attempt
    FROM penstock.held WHERE id = ANY (ids)
    UNION ALL
    SELECT dead.id, 'dead', dead.due_at, dead.reason, dead.attempt
    FROM penstock.dead WHERE id = ANY (ids)
    UNION ALL
    SELECT cancelled.id, 'cancelled', NULL, NULL, (
        SELECT attempt FROM penstock.attempt WHERE item_id = cancelled.id
        ORDER BY attempt DESC
        LIMIT 1
    )
    FROM penstock.cancelled WHERE id = ANY (ids)
    UNION ALL
    -- An operator who resolves an item makes no attempt of a worker.
    SELECT attempt.item_id, 'done', NULL, NULL,
        attempt.attempt - (attempt.resolved_by IS NOT NULL)::integer
    FROM penstock.attempt
    WHERE item_id = ANY (ids) AND outcome = 'done'
$$;
