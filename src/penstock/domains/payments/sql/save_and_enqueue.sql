-- Save contexts and enqueue items in the caller's transaction, with the outcomes as parallel arrays in
-- one row. Written so that it runs in any driver: CAST, not ::.
SELECT array_agg(payment_id), array_agg(item_id), array_agg(scheduled_at)
FROM penstock.save_context_and_enqueue(
    CAST($1 AS text), CAST($2 AS text[]), CAST(CAST($3 AS text[]) AS jsonb[]), CAST($4 AS integer[]),
    CAST($5 AS timestamptz[]), CAST($6 AS timestamptz));
