-- Insert payments that are not known, in the order of their ids, so that two callers cannot deadlock, and
-- return the ids of those that are new. A payment that another transaction has inserted, and has not yet
-- committed, is waited for. New ones are added to the sums of their days, where the rules have created
-- and locked one. Until the instant is determined, it is the one that was asked for: without one a payment
-- would be in no list, and where both are the same, enqueueing writes no index. Written so that it runs in
-- any driver: CAST, not ::.
WITH made AS (
    INSERT INTO penstock.payment (
        payment_id, item_type, status, amount, currency, debtor, creditor, participant_id, rail_type,
        notify, execute_at, scheduled_at, content_hash, init_workflow_id, created_by, created_at,
        updated_at, counted_day)
    SELECT g.payment_id, g.item_type, 'SCHEDULED', CAST(g.amount AS numeric), g.currency,
        CAST(g.debtor AS jsonb), CAST(g.creditor AS jsonb), g.participant_id, g.rail_type,
        CAST(g.notify AS jsonb), g.execute_at, coalesce(g.execute_at, CAST($14 AS timestamptz)),
        g.content_hash, g.init_workflow_id, g.created_by,
        CAST($14 AS timestamptz), CAST($14 AS timestamptz), t.day
    FROM unnest(
        CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]),
        CAST($5 AS text[]), CAST($6 AS text[]), CAST($7 AS text[]), CAST($8 AS text[]),
        CAST($9 AS text[]), CAST($10 AS timestamptz[]), CAST($11 AS text[]),
        CAST($12 AS text[]), CAST($13 AS text[]), CAST($15 AS date[])
    ) AS g (payment_id, item_type, amount, currency, debtor, creditor, participant_id, rail_type,
        notify, execute_at, content_hash, init_workflow_id, created_by, day)
    LEFT JOIN penstock.payment_day_total AS t
        ON t.participant_id = g.participant_id AND t.currency = g.currency AND t.day = g.day
    ORDER BY g.payment_id
    ON CONFLICT DO NOTHING
    RETURNING payment_id, participant_id, currency, amount, counted_day
), counted AS (
    UPDATE penstock.payment_day_total AS t
    SET amount = t.amount + s.amount
    FROM (
        SELECT participant_id, currency, counted_day, sum(amount) AS amount
        FROM made
        WHERE counted_day IS NOT NULL
        GROUP BY participant_id, currency, counted_day
    ) AS s
    WHERE (t.participant_id, t.currency, t.day) = (s.participant_id, s.currency, s.counted_day)
)
SELECT array_agg(payment_id) FROM made;
