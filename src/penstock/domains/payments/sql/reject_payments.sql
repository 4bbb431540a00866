-- End payments that cannot be executed, and take them out of the sums of their days: they never reached
-- the rail. In this transaction they may have been moved already. The sums are locked after the payments,
-- and in the order in which the rules lock them, so that two callers cannot deadlock. Rows are looked up
-- one by one: with a join the planner may scan all payments.
WITH rejected AS MATERIALIZED (
    SELECT moved AS payment_id
    FROM penstock.move_payments(
        $1::text[], ARRAY['SCHEDULED', 'PROCESSING'], 'REJECTED', reasons => $2::text[]) AS moved
), counted AS MATERIALIZED (
    SELECT p.participant_id, p.currency, p.counted_day AS day, sum(p.amount) AS amount
    FROM rejected
    CROSS JOIN LATERAL (
        SELECT participant_id, currency, counted_day, amount
        FROM penstock.payment
        WHERE payment.payment_id = rejected.payment_id AND counted_day IS NOT NULL
        OFFSET 0
    ) AS p
    GROUP BY p.participant_id, p.currency, p.counted_day
    ORDER BY p.participant_id, p.currency, p.counted_day
), locked AS MATERIALIZED (
    SELECT counted.*
    FROM counted
    CROSS JOIN LATERAL (
        SELECT FROM penstock.payment_day_total AS t
        WHERE (t.participant_id, t.currency, t.day)
            = (counted.participant_id, counted.currency, counted.day)
        FOR UPDATE
    ) AS t
), given_back AS (
    UPDATE penstock.payment_day_total AS t
    SET amount = t.amount - locked.amount
    FROM locked
    WHERE (t.participant_id, t.currency, t.day) = (locked.participant_id, locked.currency, locked.day)
)
SELECT payment_id FROM rejected;
