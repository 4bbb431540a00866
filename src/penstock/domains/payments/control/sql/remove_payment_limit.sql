-- Remove the limit of a participant in one currency, and return it for the audit.
DELETE FROM penstock.payment_limit
WHERE participant_id = $1 AND currency = $2
RETURNING participant_id, currency, amount_max, day_amount_max;
