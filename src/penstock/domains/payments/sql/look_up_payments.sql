-- What is known of payments, as parallel arrays in one row, which of the item types exist, and the
-- instant. Written so that it runs in any driver: CAST, not ::.
SELECT array_agg(payment_id), array_agg(content_hash), array_agg(status), array_agg(scheduled_at),
    array_agg(item_id),
    ARRAY(
        SELECT item_type FROM penstock.payment_item_type WHERE item_type = ANY (CAST($2 AS text[]))),
    coalesce(CAST($3 AS timestamptz), now())
FROM penstock.payment
WHERE payment_id = ANY (CAST($1 AS text[]));
