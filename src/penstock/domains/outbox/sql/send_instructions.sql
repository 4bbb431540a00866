-- Accept instructions in the caller's transaction, with the outcomes as parallel arrays in one row.
-- Written so that it runs in any driver: CAST, not ::.
SELECT array_agg(outbox_id ORDER BY index), array_agg(sequence_id ORDER BY index),
    array_agg(is_new ORDER BY index), array_agg(CAST(conflict AS text) ORDER BY index)
FROM penstock.send_instructions(
    CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]),
    CAST(CAST($5 AS text[]) AS jsonb[]), at => coalesce(CAST($6 AS timestamptz), now()),
    raises => false, whos => CAST($7 AS text[]),
    outbox_ids => CAST(CAST($8 AS text[]) AS uuid[]));
