-- Load the contexts of claimed payments, and the engine that executes their item type now. The lane that
-- they were claimed from, $1, decides about the item type: a context or a payment of another type under
-- the same id is not what was enqueued, and is not found. The subquery is a lookup for each payment: with
-- NOT EXISTS the planner reads all payments.
SELECT c.payment_id, c.item_type, t.engine, c.context_json::text, c.context_version
FROM penstock.payment_item_type AS t
JOIN penstock.payment_exec_context AS c USING (item_type)
WHERE t.lane = $1 AND c.payment_id = ANY ($2::text[])
    AND coalesce(
        (SELECT p.item_type FROM penstock.payment AS p WHERE p.payment_id = c.payment_id),
        t.item_type) = t.item_type;
