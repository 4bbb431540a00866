-- Lock all records of the instruction, as a producer does that sends it again under another key: one of
-- both is first. Two reports about one instruction follow each other for the same reason.
SELECT k.outbox_id
FROM penstock.outbox_idempotency AS k
WHERE k.instruction_id = (SELECT i.instruction_id FROM penstock.outbox_instruction AS i WHERE i.outbox_id = $1)
ORDER BY k.generation
FOR UPDATE;
