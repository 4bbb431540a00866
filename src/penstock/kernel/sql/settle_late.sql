-- Keep what a worker said of items whose lease it had lost. Attempts that its own earlier settle
-- recorded (the commit came through, its answer did not) are no late results.
INSERT INTO penstock.late_result (item_id, token, settled_at, attempt, outcome, reason)
SELECT item_id, $1, coalesce($6::timestamptz, now()), attempt, outcome, reason
FROM unnest($2::bigint[], $3::integer[], $4::text[], $5::text[])
    AS e (item_id, attempt, outcome, reason)
WHERE NOT EXISTS (
    SELECT FROM penstock.attempt
    WHERE attempt.item_id = e.item_id AND attempt.token = $1 AND attempt.outcome <> 'lost'
    OFFSET 0  -- Keeps this a look-up for each item: as a join it may walk the whole history.
)
ON CONFLICT DO NOTHING
RETURNING item_id;
