-- Find the payments that sent these instructions. The payment's id is the instruction's; the outbox's id
-- distinguishes them from an instruction that somebody else sent under the same name.
SELECT p.payment_id, p.status, p.amount, p.currency, p.notify::text AS notify, now() AS moved_at
FROM unnest($1::text[], $2::uuid[]) AS g (payment_id, outbox_id)
CROSS JOIN LATERAL (
    SELECT * FROM penstock.payment
    WHERE payment.payment_id = g.payment_id AND payment.outbox_id = g.outbox_id
    OFFSET 0
) AS p;
