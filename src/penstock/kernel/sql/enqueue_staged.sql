-- Accept what COPY has put into the staging table, in its order.
SELECT accepted.item_id, accepted.is_new
FROM (
    SELECT array_agg(payload ORDER BY index) AS payloads, array_agg(key ORDER BY index) AS keys,
        array_agg(due_at ORDER BY index) AS due_ats,
        array_agg(order_key ORDER BY index) AS order_keys,
        array_agg(not_after ORDER BY index) AS not_afters
    FROM pg_temp.penstock_staged
) AS staged
CROSS JOIN LATERAL penstock.enqueue_many(
    $1, payloads, keys, due_ats, order_keys, not_afters, coalesce($2::timestamptz, now())
) AS accepted
ORDER BY accepted.index;
