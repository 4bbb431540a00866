-- Read a payment whose execution is to be started by a person, with its stored context. It waits if its
-- item is still in the queue, which starts it by itself.
SELECT p.payment_id, p.item_type, p.status, t.engine, c.context_version,
    c.context_json::text AS context_json,
    q.queue_status <> 'DISPATCHED' AND EXISTS (
        SELECT FROM penstock.item WHERE item.id = p.item_id
    ) AS is_waiting
FROM penstock.payment AS p
JOIN penstock.payment_item_type AS t USING (item_type)
JOIN penstock.payment_exec_context AS c
    ON c.payment_id = p.payment_id AND c.item_type = p.item_type
JOIN penstock.payment_exec_queue AS q ON q.payment_id = p.payment_id
WHERE p.payment_id = $1;
