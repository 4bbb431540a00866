-- Have a row for the day that a counted payment moves to. It is inserted before any row is locked, as the
-- rules do it, so that neither waits for the other.
INSERT INTO penstock.payment_day_total (participant_id, currency, day)
VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;
