-- Lock payments that are about to be executed, and return where they are, when they are due, and who
-- scheduled them. `is_executed` also after the rail has refused it: a payment that the outbox refused was
-- never accepted. In the order of their ids, so that two callers cannot deadlock.
SELECT payment_id, status, reason, item_id, scheduled_at, created_by,
    accepted_at IS NOT NULL AS is_executed,
    extract(epoch FROM scheduled_at - clock_timestamp())::float8 AS due_in
FROM penstock.payment
WHERE payment_id = ANY ($1::text[])
ORDER BY payment_id
FOR NO KEY UPDATE;
