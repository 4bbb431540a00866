-- Items of all types under the table name and the columns of the dispatcher that Penstock replaces; the
-- status of each row is computed when it is read. An item that has a row, and is in no table that says
-- otherwise, waits in ready or parked: these are not searched for the status. An item without a row was
-- removed by retention: it was dispatched, unless its payment says otherwise. Attempts that count are
-- those that failed: a snooze is none. Tables are joined by their keys, so that the planner can look up
-- one row or hash all.
-- The joined sequence refuses FOR UPDATE, see migration 0002. The CTE hides the outer joins from it:
-- they would be refused first, without a name to look for.
CREATE OR REPLACE VIEW penstock.payment_exec_queue AS
WITH place AS NOT MATERIALIZED (
    SELECT c.payment_id, c.item_type, c.created_at, t.engine,
        CASE
            WHEN leased.id IS NOT NULL THEN 'CLAIMED'
            WHEN dead.id IS NOT NULL THEN 'DEAD'
            WHEN held.id IS NOT NULL THEN 'HELD'
            WHEN cancelled.id IS NOT NULL THEN 'CANCELLED'
            WHEN done.item_id IS NOT NULL THEN 'DISPATCHED'
            WHEN item.id IS NOT NULL OR p.status = 'SCHEDULED' THEN 'READY'
            WHEN p.status = 'CANCELLED' THEN 'CANCELLED'
            ELSE 'DISPATCHED'
        END AS queue_status,
        -- Only an item without a payment has to be found where it waits.
        coalesce(p.scheduled_at, held.due_at, dead.due_at, (
            SELECT ready.due_at
            FROM penstock.due_instant
            CROSS JOIN LATERAL (
                SELECT due_at FROM penstock.ready
                WHERE lane_id = i.lane_id AND due_at = due_instant.due_at AND id = i.item_id
                LIMIT 1
            ) AS ready
            WHERE due_instant.item_id = i.item_id
            LIMIT 1
        ), (
            SELECT due_at FROM penstock.parked
            WHERE lane_id = i.lane_id AND order_key = item.order_key AND parked.id = i.item_id
        ), item.due_at) AS scheduled_exec_time,
        p.init_workflow_id,
        penstock.dispatch_batch_id(coalesce(leased.token, tried.token)) AS dispatch_batch_id,
        coalesce(leased.claimed_at, tried.claimed_at) AS claimed_at,
        CASE WHEN done.item_id IS NOT NULL THEN tried.settled_at END AS dispatched_at,
        tried.failed AS retry_count,
        CASE WHEN done.item_id IS NULL
            THEN coalesce(held.reason, dead.reason, tried.reason)
        END AS last_error,
        greatest(c.created_at, p.updated_at, leased.claimed_at, tried.settled_at) AS updated_at
    FROM penstock.payment_exec_context AS c
    JOIN penstock.payment_item_type AS t USING (item_type)
    JOIN penstock.lane ON lane.name = t.lane
    JOIN penstock.idempotency AS i ON i.lane_id = lane.lane_id AND i.key = c.payment_id
    LEFT JOIN penstock.payment AS p ON p.payment_id = c.payment_id
    LEFT JOIN penstock.item ON item.id = i.item_id
    LEFT JOIN penstock.attempt AS done ON done.item_id = i.item_id AND done.outcome = 'done'
    LEFT JOIN penstock.held ON held.id = i.item_id
    LEFT JOIN penstock.dead ON dead.id = i.item_id
    LEFT JOIN penstock.cancelled ON cancelled.id = i.item_id
    LEFT JOIN (
        SELECT unnest(item_ids) AS id, token, claimed_at FROM penstock.lease
    ) AS leased ON leased.id = i.item_id
    LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE outcome IN ('retry', 'lost', 'dead'))::integer AS failed,
            (array_agg(token ORDER BY attempt DESC))[1] AS token,
            (array_agg(reason ORDER BY attempt DESC))[1] AS reason,
            max(claimed_at) AS claimed_at, max(settled_at) AS settled_at
        FROM penstock.attempt
        WHERE item_id = i.item_id
    ) AS tried ON true
)
SELECT payment_id, item_type, queue_status, scheduled_exec_time, init_workflow_id, dispatch_batch_id,
    CASE WHEN dispatched_at IS NOT NULL AND engine <> 'builtin'
        THEN 'exec-' || lower(item_type) || '-' || payment_id
    END AS exec_workflow_id,
    claimed_at, dispatched_at, retry_count, last_error, created_at, updated_at
FROM place
CROSS JOIN penstock.penstock_worker_dispatches_payments;
