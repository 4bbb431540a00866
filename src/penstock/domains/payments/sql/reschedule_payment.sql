-- Note the instants of a payment whose item is rescheduled in the same transaction, and its day.
UPDATE penstock.payment
SET execute_at = $2, scheduled_at = $3, counted_day = $4, updated_at = now()
WHERE payment_id = $1;
