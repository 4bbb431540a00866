-- Accept the rows of the staging table, in their order.
SELECT item_id, is_new
FROM penstock.enqueue_staged($1, coalesce($2::timestamptz, now()), $3)
ORDER BY index;
