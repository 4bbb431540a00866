-- A page of instructions that wait for an approval, in the order in which they were accepted. $2 are the
-- beginnings of their reasons. One that is also in doubt stays held after its approval.
SELECT instruction.outbox_id, instruction.instruction_id, instruction.participant_id,
    instruction.sequence_id, instruction.rail_type, instruction.amount, instruction.currency,
    instruction.created_at, instruction.created_by, held.held_at, held.reason, instruction.item_id
FROM penstock.held
JOIN penstock.lane USING (lane_id)
JOIN penstock.outbox_instruction AS instruction ON instruction.item_id = held.id
WHERE lane.name = $1 AND held.reason ^@ ANY ($2::text[]) AND held.id > $3
    AND NOT EXISTS (
        SELECT FROM penstock.outbox_approval AS decided WHERE decided.outbox_id = instruction.outbox_id
    )
ORDER BY held.id
LIMIT $4;
