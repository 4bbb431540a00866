-- Record results of items whose lease was lost. Attempts that an earlier settle of the same worker
-- recorded (it committed, but its answer was lost) are not late results.
INSERT INTO penstock.late_result (item_id, token, settled_at, attempt, outcome, reason, result)
SELECT item_id, $1, coalesce($7::timestamptz, now()), attempt, outcome, reason, result
FROM unnest($2::bigint[], $3::integer[], $4::text[], $5::text[], $6::jsonb[])
    AS e (item_id, attempt, outcome, reason, result)
WHERE NOT EXISTS (
    SELECT FROM penstock.attempt
    WHERE attempt.item_id = e.item_id AND attempt.token = $1 AND attempt.outcome <> 'lost'
    OFFSET 0  -- Forces an index look-up per item: as a join it may scan the whole history.
)
ON CONFLICT DO NOTHING
RETURNING item_id;
