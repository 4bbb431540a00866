-- Save the context of one item and enqueue it, in one transaction; return when it is due.
SELECT scheduled_at
FROM penstock.save_context_and_enqueue(
    $1, ARRAY[$2::text], ARRAY[$3::text::jsonb], ARRAY[$4::integer], ARRAY[$5::timestamptz]);
