-- Take a cancelled payment out of the sum of its day, if it is counted there.
UPDATE penstock.payment_day_total AS t
SET amount = t.amount - p.amount
FROM penstock.payment AS p
WHERE p.payment_id = $1 AND t.participant_id = p.participant_id AND t.currency = p.currency
    AND t.day = p.counted_day;
