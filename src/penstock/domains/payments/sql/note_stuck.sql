-- Note payments of one page of the log that are still SCHEDULED or ACCEPTED although they were dispatched
-- longer ago than $2, and were due that long ago; return the last row of the page, unless it is older than
-- $3. By the time of the dispatch too: a payment may have waited in its lane for days. One that was
-- dispatched early waits on Temporal until it is due, and for its jitter. Payments are looked up one by
-- one: with a join the planner may scan them all.
WITH clock AS MATERIALIZED (
    SELECT coalesce($6::timestamptz, now()) AS at
), page AS MATERIALIZED (
    SELECT audit_id, payment_id, action, created_at
    FROM penstock.dispatch_audit_log
    WHERE audit_id < coalesce($1::bigint, 9223372036854775807)
    ORDER BY audit_id DESC
    LIMIT $4
), noted AS (
    INSERT INTO penstock.payment_stuck (payment_id)
    SELECT page.payment_id
    FROM page
    CROSS JOIN LATERAL (
        SELECT FROM penstock.payment AS p
        JOIN penstock.payment_item_type AS t USING (item_type)
        JOIN penstock.lane ON lane.name = t.lane
        WHERE p.payment_id = page.payment_id AND p.status IN ('SCHEDULED', 'ACCEPTED')
            AND p.scheduled_at < (SELECT at FROM clock) - $2::interval - lane.jitter_window
        LIMIT 1
    ) AS waiting
    WHERE page.action = 'DISPATCHED' AND page.created_at < (SELECT at FROM clock) - $2::interval
    LIMIT greatest(0, $5 - (SELECT count(*) FROM penstock.payment_stuck))
    ON CONFLICT DO NOTHING
)
SELECT audit_id
FROM page
WHERE created_at >= (SELECT at FROM clock) - $3::interval
ORDER BY audit_id
LIMIT 1;
