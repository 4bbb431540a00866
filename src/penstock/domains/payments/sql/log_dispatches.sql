-- Log the dispatches of one lease, and that the batch is complete if they were its last: then the lease
-- is gone, in this transaction. Parts of the batch that were settled earlier are counted too. The lane, $2,
-- has one item type.
WITH dispatch AS MATERIALIZED (
    SELECT payment_id, status_after, detail,
        CASE status_after WHEN 'DISPATCHED' THEN 'DISPATCHED' ELSE 'DISPATCH_FAILED' END AS action
    FROM unnest($3::text[], $4::text[], $5::text[]) AS d (payment_id, status_after, detail)
), complete AS MATERIALIZED (
    SELECT penstock.dispatch_batch_id($1) AS batch_id
    WHERE NOT EXISTS (SELECT FROM penstock.lease WHERE token = $1)
), counted AS (
    SELECT count(*) FILTER (WHERE both_parts.action = 'DISPATCHED') AS dispatched,
        count(*) FILTER (WHERE both_parts.action = 'DISPATCH_FAILED') AS failed
    FROM complete
    CROSS JOIN LATERAL (
        SELECT action FROM penstock.dispatch_audit_log AS l WHERE l.batch_id = complete.batch_id
        UNION ALL
        SELECT action FROM dispatch
    ) AS both_parts
    HAVING count(*) > 0
)
INSERT INTO penstock.dispatch_audit_log
    (batch_id, item_type, payment_id, action, status_before, status_after, detail)
SELECT penstock.dispatch_batch_id($1), t.item_type, payment_id, action, status_before, status_after,
    detail
FROM penstock.payment_item_type AS t
CROSS JOIN (
    SELECT 1 AS place, payment_id, action, 'CLAIMED' AS status_before, status_after, detail
    FROM dispatch
    UNION ALL
    SELECT 2, NULL, 'BATCH_COMPLETE', NULL, NULL,
        json_build_object('dispatched', dispatched, 'failed', failed)::text
    FROM counted
) AS logged
WHERE t.lane = $2
ORDER BY place;
