-- Return where the kernel has the item of a payment, in the words of the document, and what was tried:
-- one row. What retention has removed was dispatched, unless the payment says that it was cancelled.
-- Attempts that count are those that failed: a snooze is none.
CREATE OR REPLACE FUNCTION penstock.payment_queue_place(of_payment text, of_item bigint)
RETURNS TABLE (
    queue_status text, scheduled_exec_time timestamptz, init_workflow_id text, dispatch_batch_id text,
    claimed_at timestamptz, dispatched_at timestamptz, retry_count integer, last_error text,
    updated_at timestamptz
)
LANGUAGE sql STABLE
-- A few rows are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    SELECT
        CASE coalesce(place.state, lower(p.status))
            WHEN 'leased' THEN 'CLAIMED'
            WHEN 'scheduled' THEN 'READY'
            WHEN 'ready' THEN 'READY'
            WHEN 'parked' THEN 'READY'
            WHEN 'dead' THEN 'DEAD'
            WHEN 'held' THEN 'HELD'
            WHEN 'cancelled' THEN 'CANCELLED'
            ELSE 'DISPATCHED'
        END,
        coalesce(p.scheduled_at, place.due_at, item.due_at),
        p.init_workflow_id,
        penstock.dispatch_batch_id(coalesce(held.token, tried.token)),
        coalesce(held.claimed_at, tried.claimed_at),
        CASE WHEN place.state = 'done' THEN tried.settled_at END,
        tried.failed,
        CASE WHEN place.state <> 'done' THEN coalesce(place.reason, tried.reason) END,
        greatest(p.updated_at, held.claimed_at, tried.settled_at)
    FROM (
        SELECT count(*) FILTER (WHERE outcome IN ('retry', 'lost', 'dead'))::integer AS failed,
            (array_agg(token ORDER BY attempt DESC))[1] AS token,
            (array_agg(reason ORDER BY attempt DESC))[1] AS reason,
            max(claimed_at) AS claimed_at, max(settled_at) AS settled_at
        FROM penstock.attempt
        WHERE item_id = of_item
    ) AS tried
    LEFT JOIN penstock.payment AS p ON p.payment_id = of_payment
    LEFT JOIN penstock.item ON item.id = of_item
    LEFT JOIN penstock.locate(ARRAY[of_item]) AS place ON true
    LEFT JOIN LATERAL (
        SELECT token, claimed_at FROM penstock.lease
        WHERE place.state = 'leased' AND of_item = ANY (item_ids)
    ) AS held ON true
$$;
