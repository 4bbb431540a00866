-- Lock the key of an instruction, as a producer does that sends it again under another key: one of both
-- is first. Two reports about one instruction follow each other for the same reason.
SELECT k.outbox_id
FROM penstock.outbox_instruction AS i
JOIN penstock.outbox_idempotency AS k USING (instruction_id, idempotency_key)
WHERE i.outbox_id = $1
FOR UPDATE OF k;
