-- The limits of one scope in one currency, for the audit.
SELECT scope, name, currency, amount_max, approval_above, day_amount_max
FROM penstock.outbox_limit
WHERE scope = $1 AND name = $2 AND currency = $3
FOR UPDATE;
