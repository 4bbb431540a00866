-- Lock one kept result that is due, until the end of the transaction. Of a payment only its oldest: a
-- later one waits for it also while another process applies it, or while it is postponed.
SELECT id, payment_id, outbox_id, status, rail_reference, reason
FROM penstock.payment_kept_result AS k
WHERE due_at <= now()
    AND NOT EXISTS (
        SELECT FROM penstock.payment_kept_result AS older
        WHERE older.payment_id = k.payment_id AND older.id < k.id
    )
ORDER BY due_at, id
LIMIT 1
FOR UPDATE OF k SKIP LOCKED;
