-- The decision about an instruction.
SELECT outbox_id, decision, key_id, reason, decided_at FROM penstock.outbox_approval WHERE outbox_id = $1;
