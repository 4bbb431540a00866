-- Forget payments that were stuck and have moved. Rows that another process forgets are left to it.
DELETE FROM penstock.payment_stuck
WHERE payment_id = ANY (ARRAY(
    SELECT s.payment_id
    FROM penstock.payment_stuck AS s
    WHERE NOT EXISTS (
        SELECT FROM penstock.payment AS p
        WHERE p.payment_id = s.payment_id AND p.status IN ('SCHEDULED', 'ACCEPTED')
    )
    FOR UPDATE OF s SKIP LOCKED
));
