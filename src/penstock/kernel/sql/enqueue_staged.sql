-- Accept what COPY has put into the staging table, in its order.
SELECT item_id, is_new
FROM penstock.enqueue_staged($1, coalesce($2::timestamptz, now()))
ORDER BY index;
