-- A page of gaps, the oldest first.
SELECT gap.gap_id, gap.outbox_id, instruction.instruction_id, gap.participant_id, gap.sequence_id,
    gap.who, gap.reason, gap.at
FROM penstock.outbox_gap AS gap JOIN penstock.outbox_instruction AS instruction USING (outbox_id)
WHERE ($1::text IS NULL OR gap.participant_id = $1) AND gap.gap_id > $2
ORDER BY gap.gap_id
LIMIT $3;
