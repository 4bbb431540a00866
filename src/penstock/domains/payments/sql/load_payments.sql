-- Load the contexts of claimed payments, and the engine that executes their item type now.
SELECT c.payment_id, c.item_type, t.engine, c.context_json::text, c.context_version
FROM penstock.payment_exec_context AS c
JOIN penstock.payment_item_type AS t USING (item_type)
WHERE c.payment_id = ANY ($1::text[]);
