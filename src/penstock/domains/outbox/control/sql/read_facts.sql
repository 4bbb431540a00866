-- An instruction that a person decides about, and what is known of its payment. It is paid if the latest
-- row of the archive or a report of the rail says so.
SELECT instruction.outbox_id, instruction.item_id, instruction.instruction_id,
    instruction.participant_id, instruction.sequence_id, instruction.created_by,
    coalesce(archived.state IN ('DISPATCHED', 'SETTLED'), false)
        OR (archived.state IS DISTINCT FROM 'RETURNED' AND EXISTS (
            SELECT FROM penstock.outbox_result AS reported
            WHERE reported.outbox_id = instruction.outbox_id AND reported.status IN ('paid', 'settled')
        )) AS is_paid,
    past.may_be_paid,
    coalesce(instruction.amount > rule.approval_above, false) AS needs_approval,
    gap.outbox_id IS NOT NULL AS is_skipped,
    EXISTS (
        SELECT FROM penstock.outbox_idempotency AS other
        WHERE other.instruction_id = instruction.instruction_id
            AND other.outbox_id <> instruction.outbox_id
    ) AS is_sent_again
FROM penstock.outbox_instruction AS instruction
CROSS JOIN LATERAL penstock.find_outbox_limit(
    instruction.participant_id, instruction.rail_type, instruction.currency) AS rule
CROSS JOIN LATERAL penstock.outbox_past_calls(instruction.outbox_id, instruction.item_id) AS past
LEFT JOIN penstock.outbox_gap AS gap ON gap.outbox_id = instruction.outbox_id
LEFT JOIN LATERAL (
    SELECT state FROM penstock.outbox_attempt
    WHERE outbox_attempt.outbox_id = instruction.outbox_id
    ORDER BY created_at DESC, attempt_id DESC
    LIMIT 1
) AS archived ON true
WHERE instruction.outbox_id = $1;
