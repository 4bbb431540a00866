-- One payment with its context.
SELECT payment_id, p.item_type, p.status, p.amount, p.currency, p.debtor, p.creditor,
    p.participant_id, p.rail_type, p.notify, p.execute_at, p.scheduled_at, p.content_hash, p.item_id,
    p.init_workflow_id, p.outbox_id, p.rail_reference, p.reason, p.created_by, p.created_at,
    p.accepted_at, p.processing_at, p.ended_at, c.context_json::text AS context_json,
    c.context_version
FROM penstock.payment AS p
LEFT JOIN penstock.payment_exec_context AS c USING (payment_id)
WHERE payment_id = $1;
