-- The day in whose sum a payment is counted. Without it, a payment that was scheduled before there was a
-- limit would be taken out of a sum that it was never added to.
ALTER TABLE penstock.payment ADD COLUMN counted_day date;
UPDATE penstock.payment AS p
SET counted_day = t.day
FROM penstock.payment_day_total AS t
WHERE p.status = 'SCHEDULED' AND t.participant_id = p.participant_id AND t.currency = p.currency
    AND t.day = (coalesce(p.execute_at, p.created_at) AT TIME ZONE 'UTC')::date;
