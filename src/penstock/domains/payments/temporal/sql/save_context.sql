-- Save the context of one item and enqueue it, in one transaction; return when it is due. A payment that
-- was rejected before it had an item stays so: then there is no row.
SELECT (
    SELECT scheduled_at
    FROM penstock.save_context_and_enqueue(
        $1, ARRAY[$2::text], ARRAY[$3::text::jsonb], ARRAY[$4::integer], ARRAY[$5::timestamptz]))
WHERE NOT EXISTS (
    SELECT FROM penstock.payment
    WHERE payment_id = $2 AND item_type = $1 AND status = 'REJECTED' AND item_id IS NULL);
