-- An instruction that a person decides about, and what is known of its payment.
SELECT instruction.outbox_id, instruction.item_id, instruction.instruction_id,
    instruction.participant_id, instruction.sequence_id, instruction.created_by,
    penstock.outbox_is_paid(instruction.outbox_id) AS is_paid,
    'RETURNED' = ANY (known.states) AND NOT known.is_contradicted AS is_returned,
    past.may_be_paid,
    coalesce(instruction.amount > rule.approval_above, false) AS needs_approval,
    gap.outbox_id IS NOT NULL AS is_skipped,
    EXISTS (
        SELECT FROM penstock.outbox_idempotency AS own
        JOIN penstock.outbox_idempotency AS later USING (instruction_id)
        WHERE own.instruction_id = instruction.instruction_id AND own.outbox_id = instruction.outbox_id
            AND later.generation > own.generation
    ) AS is_sent_again
FROM penstock.outbox_instruction AS instruction
CROSS JOIN LATERAL penstock.find_outbox_limit(
    instruction.participant_id, instruction.rail_type, instruction.currency) AS rule
CROSS JOIN LATERAL penstock.outbox_last_states(ARRAY[instruction.outbox_id]) AS known
CROSS JOIN LATERAL penstock.outbox_past_calls(instruction.outbox_id, instruction.item_id) AS past
LEFT JOIN penstock.outbox_gap AS gap ON gap.outbox_id = instruction.outbox_id
WHERE instruction.outbox_id = $1;
