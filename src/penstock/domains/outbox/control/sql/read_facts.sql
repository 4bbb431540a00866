-- An instruction that a person decides about, and what is known of its payment. It is paid if the latest
-- row of the archive or a report of the rail says so, and may have been paid if its last attempt was
-- lost, or if the latest row of the archive leaves it open.
SELECT instruction.outbox_id, instruction.item_id, instruction.instruction_id,
    instruction.participant_id, instruction.sequence_id, instruction.created_by,
    archived.state IS NOT NULL OR coalesce(tried.outcome IN ('lost', 'retry', 'dead'), false) AS is_sent,
    coalesce(archived.state IN ('DISPATCHED', 'SETTLED'), false)
        OR (archived.state IS DISTINCT FROM 'RETURNED' AND EXISTS (
            SELECT FROM penstock.outbox_result AS reported
            WHERE reported.outbox_id = instruction.outbox_id AND reported.status IN ('paid', 'settled')
        )) AS is_paid,
    coalesce(archived.state = 'UNKNOWN', false)
        -- Sent again under the same key; for other codes it is known that no call was paid.
        OR coalesce(archived.state = 'ZOMBIE_REQUEUE'
            AND coalesce(archived.error_code, 'SAME_KEY') = 'SAME_KEY', false)
        OR coalesce(tried.outcome = 'lost'
            AND tried.settled_at > coalesce(archived.created_at, '-infinity'), false) AS may_be_paid,
    coalesce(instruction.amount > rule.approval_above, false) AS needs_approval,
    gap.outbox_id IS NOT NULL AS is_skipped
FROM penstock.outbox_instruction AS instruction
CROSS JOIN LATERAL penstock.find_outbox_limit(
    instruction.participant_id, instruction.rail_type, instruction.currency) AS rule
LEFT JOIN penstock.outbox_gap AS gap ON gap.outbox_id = instruction.outbox_id
LEFT JOIN LATERAL (
    SELECT state, error_code, created_at FROM penstock.outbox_attempt
    WHERE outbox_attempt.outbox_id = instruction.outbox_id
    ORDER BY created_at DESC, attempt_id DESC
    LIMIT 1
) AS archived ON true
LEFT JOIN LATERAL (
    SELECT outcome, settled_at FROM penstock.attempt
    WHERE attempt.item_id = instruction.item_id AND outcome <> 'snooze'
    ORDER BY attempt DESC
    LIMIT 1
) AS tried ON true
WHERE instruction.outbox_id = $1;
