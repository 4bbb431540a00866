-- Return what events say about the instructions of items that could not be loaded for their attempt.
SELECT item_id, outbox_id, instruction_id, participant_id, sequence_id, rail_type, amount, currency
FROM penstock.outbox_instruction
WHERE item_id = ANY ($1::bigint[]);
