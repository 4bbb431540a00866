-- Keep what a rail reports, and return whether it is new: once for each status, and a refusal once for
-- each attempt of the instruction. A refusal that is dated like an earlier one is a repeat of it,
-- whatever has been tried since. $5 NULL: the report is not dated.
INSERT INTO penstock.outbox_result
    (outbox_id, status, rail_code, rail_reference, occurred_at, received_at, due_at, code_class, attempt)
SELECT i.outbox_id, $2, $3, $4, coalesce($5::timestamptz, $6::timestamptz, now()),
    coalesce($6::timestamptz, now()), coalesce($6::timestamptz, now()), $7,
    CASE WHEN $2 = 'refused' THEN coalesce(
        (SELECT l.attempts + (l.state = 'leased')::integer FROM penstock.locate(ARRAY[i.item_id]) AS l LIMIT 1),
        (SELECT max(a.attempt_no) FROM penstock.outbox_attempt AS a WHERE a.outbox_id = i.outbox_id),
        0) ELSE 0 END
FROM penstock.outbox_instruction AS i
WHERE i.outbox_id = $1
    AND NOT EXISTS (
        SELECT FROM penstock.outbox_result AS r
        WHERE r.outbox_id = $1 AND r.status = $2 AND r.occurred_at = $5::timestamptz)
ON CONFLICT DO NOTHING
RETURNING true;
