-- Lock payments that are about to be executed, and return where they are. In the order of their ids, so
-- that two callers cannot deadlock.
SELECT payment_id, status, reason
FROM penstock.payment
WHERE payment_id = ANY ($1::text[])
ORDER BY payment_id
FOR NO KEY UPDATE;
