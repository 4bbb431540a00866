-- Remove the limits of one scope in one currency, and return them for the audit.
DELETE FROM penstock.outbox_limit
WHERE scope = $1 AND name = $2 AND currency = $3
RETURNING scope, name, currency, amount_max, approval_above, day_amount_max;
