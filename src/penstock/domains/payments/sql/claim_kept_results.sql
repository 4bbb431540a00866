-- The oldest kept results that are due, each in one process; if they cannot be applied again, they are
-- due after $2.
WITH due AS MATERIALIZED (
    SELECT id FROM penstock.payment_kept_result
    WHERE due_at <= now()
    ORDER BY id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE penstock.payment_kept_result AS k
SET due_at = now() + $2::interval
FROM due
WHERE k.id = due.id
RETURNING k.id, k.payment_id, k.outbox_id, k.status, k.rail_reference, k.reason;
