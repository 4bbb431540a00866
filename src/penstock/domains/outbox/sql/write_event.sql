-- A later row of the archive, under the number of the last attempt.
INSERT INTO penstock.outbox_attempt (attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at,
    rail_code, rail_reference, error_code, error_message, created_at, who)
SELECT gen_random_uuid(), $1, coalesce(max(attempt_no), 0), $2, coalesce($8::timestamptz, now()),
    coalesce($8::timestamptz, now()), $4, $5, $6, left($7, 1000), coalesce($8::timestamptz, now()), $3
FROM penstock.outbox_attempt
WHERE outbox_id = $1;
