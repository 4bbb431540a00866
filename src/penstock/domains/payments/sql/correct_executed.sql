-- Correct what was written of payments before the outbox had answered: the ids of their instructions. A
-- payment that it refused has none, and was never accepted.
UPDATE penstock.payment AS p
SET outbox_id = given.outbox_id,
    accepted_at = CASE WHEN p.status <> 'REJECTED' THEN p.accepted_at END,
    processing_at = CASE WHEN p.status <> 'REJECTED' THEN p.processing_at END
FROM unnest($1::text[], $2::uuid[]) AS given (payment_id, outbox_id)
WHERE p.payment_id = given.payment_id;
