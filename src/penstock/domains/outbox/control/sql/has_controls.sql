-- Whether any of a batch of instructions can be held back: by a switch, a suspension, a limit or a
-- decision. For most batches nothing else has to be looked up. $1 is text, which is faster to encode.
-- Suspensions and decisions are looked up one by one: EXISTS alone may read the whole table.
SELECT EXISTS (
        SELECT FROM penstock.outbox_switch
        WHERE scope = 'all' OR (scope = 'rail' AND name = ANY ($3::text[]))
            OR (scope = 'participant' AND name = ANY ($2::text[]))
    )
    OR EXISTS (SELECT FROM penstock.outbox_limit WHERE currency = ANY ($4::text[]))
    OR EXISTS (
        SELECT FROM unnest($2::text[]) AS given (participant_id)
        CROSS JOIN LATERAL (
            SELECT FROM penstock.outbox_suspension
            WHERE outbox_suspension.participant_id = given.participant_id
            LIMIT 1
        ) AS suspension
    )
    OR EXISTS (
        SELECT FROM unnest($1::text::uuid[]) AS given (outbox_id)
        CROSS JOIN LATERAL (
            SELECT FROM penstock.outbox_approval
            WHERE outbox_approval.outbox_id = given.outbox_id
            LIMIT 1
        ) AS approval
    );
