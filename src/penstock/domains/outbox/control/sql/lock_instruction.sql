-- Lock all records of one instruction: against a producer that sends it again under another key, and
-- against another decision of an operator.
SELECT outbox_id FROM penstock.outbox_idempotency
WHERE instruction_id = $1
ORDER BY generation
FOR UPDATE;
