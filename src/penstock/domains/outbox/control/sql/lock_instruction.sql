-- All records of one instruction, locked against a producer that sends it again under another key.
SELECT outbox_id FROM penstock.outbox_idempotency WHERE instruction_id = $1 FOR UPDATE;
