-- Add an amount to the sum of a day, where the rules count one, and return the day.
UPDATE penstock.payment_day_total
SET amount = amount + $4
WHERE participant_id = $1 AND currency = $2 AND day = $3
RETURNING day;
