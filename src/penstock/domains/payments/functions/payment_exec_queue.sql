-- Items of all types under the table name and the columns of the dispatcher that Penstock replaces; the
-- status of each row is computed when it is read. The joined sequence refuses FOR UPDATE, see migration
-- 0002: an outer join would be refused first, without a name to look for.
CREATE OR REPLACE VIEW penstock.payment_exec_queue AS
SELECT c.payment_id, c.item_type, q.queue_status, q.scheduled_exec_time, q.init_workflow_id,
    q.dispatch_batch_id,
    CASE WHEN q.dispatched_at IS NOT NULL AND t.engine <> 'builtin'
        THEN 'exec-' || lower(c.item_type) || '-' || c.payment_id
    END AS exec_workflow_id,
    q.claimed_at, q.dispatched_at, q.retry_count, q.last_error, c.created_at,
    greatest(c.created_at, q.updated_at) AS updated_at
FROM penstock.payment_exec_context AS c
JOIN penstock.payment_item_type AS t USING (item_type)
JOIN penstock.lane ON lane.name = t.lane
JOIN penstock.idempotency AS i ON i.lane_id = lane.lane_id AND i.key = c.payment_id
CROSS JOIN LATERAL penstock.payment_queue_place(c.payment_id, i.item_id) AS q
CROSS JOIN penstock.penstock_worker_dispatches_payments;
