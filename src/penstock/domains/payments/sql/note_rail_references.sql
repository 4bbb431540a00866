-- Note the rail's references of payments that it has accepted; their status stays. Rows are locked in
-- the order of their ids, as move_payments does, so that two callers cannot deadlock.
WITH given AS MATERIALIZED (
    SELECT g.*
    FROM (
        SELECT * FROM unnest($1::text[], $2::text[]) AS u (payment_id, rail_reference)
        ORDER BY u.payment_id
    ) AS g
    CROSS JOIN LATERAL (
        SELECT FROM penstock.payment
        WHERE payment.payment_id = g.payment_id AND status = 'PROCESSING'
            AND payment.rail_reference IS DISTINCT FROM g.rail_reference
        FOR NO KEY UPDATE
    ) AS locked
)
UPDATE penstock.payment AS p
SET rail_reference = given.rail_reference, updated_at = now()
FROM given
WHERE p.payment_id = given.payment_id;
