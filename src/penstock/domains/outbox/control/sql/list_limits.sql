-- All limits.
SELECT scope, name, currency, amount_max, approval_above, day_amount_max
FROM penstock.outbox_limit
ORDER BY scope, name, currency;
