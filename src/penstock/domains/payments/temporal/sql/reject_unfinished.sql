-- End a payment that was persisted and cannot be enqueued, and take it out of the sum of its day; its
-- fingerprint is free with its status. Not if it has an item by now, or has other content ($4; NULL: any).
-- The sum is locked before the payment, as a batch does that completes one and counts others.
WITH day AS MATERIALIZED (
    SELECT t.participant_id, t.currency, t.day, p.amount
    FROM penstock.payment AS p
    JOIN penstock.payment_day_total AS t
        ON t.participant_id = p.participant_id AND t.currency = p.currency AND t.day = p.counted_day
    WHERE p.payment_id = $1
    FOR UPDATE OF t
), unfinished AS MATERIALIZED (
    SELECT payment_id
    FROM penstock.payment
    WHERE payment_id = $1 AND item_type = $3 AND status = 'SCHEDULED' AND item_id IS NULL
        AND content_hash = coalesce($4, content_hash) AND (SELECT count(*) FROM day) >= 0
    FOR NO KEY UPDATE
), rejected AS MATERIALIZED (
    SELECT moved
    FROM unfinished
    CROSS JOIN LATERAL penstock.move_payments(
        ARRAY[payment_id], ARRAY['SCHEDULED'], 'REJECTED', reasons => ARRAY[$2::text]) AS moved
), given_back AS (
    UPDATE penstock.payment_day_total AS t
    SET amount = t.amount - day.amount
    FROM day, rejected
    WHERE (t.participant_id, t.currency, t.day) = (day.participant_id, day.currency, day.day)
)
SELECT count(*) FROM rejected;
