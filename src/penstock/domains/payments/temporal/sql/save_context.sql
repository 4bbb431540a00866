-- Save the context of one item and enqueue it; return when it is due, and whether it had no item before.
SELECT scheduled_at, is_new
FROM penstock.save_context_and_enqueue(
    $1, ARRAY[$2::text], ARRAY[$3::text::jsonb], ARRAY[$4::integer], ARRAY[$5::timestamptz]);
