-- Archive what became of an instruction after its last attempt, and return what its event says. The row
-- is later than what this transaction has seen, also if the transaction began before that.
WITH subject AS MATERIALIZED (
    SELECT i.*, coalesce($9::integer, (
            SELECT max(attempt_no) FROM penstock.outbox_attempt AS a WHERE a.outbox_id = i.outbox_id
        ), 0) AS attempt_no, coalesce($8::timestamptz, now()) AS at
    FROM penstock.outbox_instruction AS i
    WHERE i.outbox_id = $1
), written AS (
    INSERT INTO penstock.outbox_attempt
        (attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, rail_reference, rail_code,
         error_code, error_message, created_at, who)
    SELECT penstock.uuid_v7(), outbox_id, attempt_no, $2, at, at, $5, $4, $6, $7, clock_timestamp(), $3
    FROM subject
)
SELECT outbox_id, instruction_id, participant_id, sequence_id, rail_type, amount, currency
FROM subject;
