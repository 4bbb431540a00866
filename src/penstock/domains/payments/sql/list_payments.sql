-- Payments by their scheduled instant, the last first, from a cursor on, within a range.
SELECT payment_id, item_type, status, amount, currency, debtor, creditor, participant_id, rail_type,
    notify, execute_at, scheduled_at, content_hash, item_id, init_workflow_id, outbox_id,
    rail_reference, reason, created_by, created_at, accepted_at, processing_at, ended_at
FROM penstock.payment
WHERE (scheduled_at, payment_id) < (coalesce($1, 'infinity'::timestamptz), coalesce($2::text, ''))
    AND scheduled_at >= coalesce($3, '-infinity'::timestamptz)
    AND scheduled_at < coalesce($4, 'infinity'::timestamptz)
ORDER BY scheduled_at DESC, payment_id DESC
LIMIT $5;
