-- Take an amount out of the sum of a day. The day that it moves to is locked as well, both in the order of
-- the days, so that two payments that change places cannot deadlock.
WITH locked AS MATERIALIZED (
    SELECT FROM penstock.payment_day_total
    WHERE participant_id = $1 AND currency = $2 AND day IN ($3, $4)
    ORDER BY day
    FOR UPDATE
)
UPDATE penstock.payment_day_total
SET amount = amount - $5
WHERE participant_id = $1 AND currency = $2 AND day = $3 AND (SELECT count(*) FROM locked) > 0;
