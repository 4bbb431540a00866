-- Accept one item in the caller's transaction.
-- CAST is spelt out: some drivers parse :: as a parameter.
SELECT item_id, is_new
FROM penstock.enqueue_many(
    CAST($1 AS text),
    ARRAY[CAST($2 AS jsonb)],
    ARRAY[CAST($3 AS text)],
    ARRAY[CAST($4 AS timestamptz)],
    ARRAY[CAST($5 AS text)],
    ARRAY[CAST($6 AS timestamptz)],
    coalesce(CAST($8 AS timestamptz), now()),
    CAST($9 AS text),
    ARRAY[CAST($7 AS jsonb)]
);
