-- Say at a payment why its workflow has failed. The rail has not said anything about it yet.
UPDATE penstock.payment
SET reason = $2, updated_at = now()
WHERE payment_id = $1 AND status IN ('SCHEDULED', 'ACCEPTED');
