-- Read a payment whose execution is to be started by a person, with its stored context, which is NULL if
-- the payment was not enqueued. It waits if its item is still in the queue.
SELECT p.payment_id, p.item_type, p.status, t.engine, c.context_version,
    c.context_json::text AS context_json,
    CASE WHEN EXISTS (SELECT FROM penstock.item WHERE item.id = p.item_id)
        THEN nullif(q.queue_status, 'DISPATCHED')
    END AS waits_as
FROM penstock.payment AS p
JOIN penstock.payment_item_type AS t USING (item_type)
LEFT JOIN penstock.payment_exec_context AS c
    ON c.payment_id = p.payment_id AND c.item_type = p.item_type
LEFT JOIN penstock.payment_exec_queue AS q ON q.payment_id = p.payment_id
WHERE p.payment_id = $1;
