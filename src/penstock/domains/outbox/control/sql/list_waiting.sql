-- A page of instructions that wait for an approval, in the order in which they were accepted.
SELECT instruction.outbox_id, instruction.instruction_id, instruction.participant_id,
    instruction.sequence_id, instruction.rail_type, instruction.amount, instruction.currency,
    instruction.created_at, instruction.created_by, held.held_at, held.reason, instruction.item_id
FROM penstock.held
JOIN penstock.lane USING (lane_id)
JOIN penstock.outbox_instruction AS instruction ON instruction.item_id = held.id
WHERE lane.name = $1 AND starts_with(held.reason, $2) AND held.id > $3
ORDER BY held.id
LIMIT $4;
