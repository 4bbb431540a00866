-- The item of an instruction.
SELECT item_id FROM penstock.outbox_instruction WHERE outbox_id = $1;
