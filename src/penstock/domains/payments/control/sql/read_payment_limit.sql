-- The limit of a participant in one currency, for the audit.
SELECT participant_id, currency, amount_max, day_amount_max
FROM penstock.payment_limit
WHERE participant_id = $1 AND currency = $2
FOR UPDATE;
