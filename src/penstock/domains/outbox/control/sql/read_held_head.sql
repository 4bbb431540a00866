-- The held head of a participant, what was decided about it, and whether it may have been paid.
-- Locked: released and sent meanwhile, it would be ended by a decision about what it was before.
SELECT instruction.outbox_id, instruction.item_id, held.reason,
    approval.decision, approval.key_id, approval.reason AS decision_reason,
    EXISTS (SELECT FROM penstock.outbox_suspension WHERE participant_id = $2) AS is_suspended,
    past.may_be_paid
FROM penstock.held
JOIN penstock.lane USING (lane_id)
JOIN penstock.outbox_instruction AS instruction ON instruction.item_id = held.id
CROSS JOIN LATERAL penstock.outbox_past_calls(instruction.outbox_id, instruction.item_id) AS past
LEFT JOIN penstock.outbox_approval AS approval USING (outbox_id)
WHERE lane.name = $1 AND instruction.participant_id = $2
FOR UPDATE OF held;
