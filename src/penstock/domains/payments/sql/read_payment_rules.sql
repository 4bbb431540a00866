-- What the rules know about payments, as parallel arrays in one row. Written so that it runs in any
-- driver: CAST, not ::.
SELECT array_agg(amount_max ORDER BY index), array_agg(day_amount_max ORDER BY index),
    array_agg(day_total ORDER BY index), array_agg(holder ORDER BY index)
FROM penstock.read_payment_rules(
    CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS date[]),
    CAST($6 AS text[]));
