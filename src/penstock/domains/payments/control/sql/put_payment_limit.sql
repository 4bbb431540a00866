-- Set or replace the limit of a participant in one currency; the empty name is for all.
INSERT INTO penstock.payment_limit (participant_id, currency, amount_max, day_amount_max)
VALUES ($1, $2, $3, $4)
ON CONFLICT (participant_id, currency) DO UPDATE
SET amount_max = excluded.amount_max, day_amount_max = excluded.day_amount_max;
