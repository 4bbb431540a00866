-- Lock the payment of an execution, and return where it is, when it is due, who scheduled it, and its
-- stored context. `is_executed` also after the rail has refused it: a payment that the outbox refused was
-- never accepted.
SELECT p.payment_id, p.item_type, p.status, p.created_by, p.accepted_at IS NOT NULL AS is_executed,
    extract(epoch FROM p.scheduled_at - clock_timestamp())::float8 AS due_in,
    coalesce(t.engine, 'temporal') AS engine, c.context_version, c.context_json::text AS context_json
FROM penstock.payment AS p
LEFT JOIN penstock.payment_item_type AS t USING (item_type)
LEFT JOIN penstock.payment_exec_context AS c
    ON c.payment_id = p.payment_id AND c.item_type = p.item_type
WHERE p.payment_id = $1
FOR NO KEY UPDATE OF p;
