-- Note payments of one page that were persisted and never enqueued, and were to be executed longer ago
-- than $3; return the last payment of the page. Only payments of the last $4 are looked at.
WITH clock AS MATERIALIZED (
    SELECT coalesce($7::timestamptz, now()) AS at
), page AS MATERIALIZED (
    SELECT payment_id, scheduled_at, item_id, status
    FROM penstock.payment
    WHERE (scheduled_at, payment_id)
            < (coalesce($1::timestamptz, (SELECT at FROM clock) - $3::interval), coalesce($2::text, ''))
        AND scheduled_at >= (SELECT at FROM clock) - $4::interval
    ORDER BY scheduled_at DESC, payment_id DESC
    LIMIT $5
), noted AS (
    INSERT INTO penstock.payment_stuck (payment_id)
    SELECT payment_id
    FROM page
    WHERE item_id IS NULL AND status = 'SCHEDULED'
    LIMIT greatest(0, $6 - (SELECT count(*) FROM penstock.payment_stuck))
    ON CONFLICT DO NOTHING
)
SELECT scheduled_at, payment_id FROM page ORDER BY scheduled_at, payment_id LIMIT 1;
