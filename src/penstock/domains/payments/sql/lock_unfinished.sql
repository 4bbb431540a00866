-- Lock payments that were persisted and not enqueued, before any sum of a day is locked. In the order of
-- their ids, so that two callers cannot deadlock. Written so that it runs in any driver: CAST, not ::.
SELECT count(*)
FROM (
    SELECT payment_id
    FROM penstock.payment
    WHERE payment_id = ANY (CAST($1 AS text[])) AND item_id IS NULL
    ORDER BY payment_id
    FOR NO KEY UPDATE
) AS locked;
