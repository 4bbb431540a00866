-- A page of gaps, the oldest first: numbers that an operator passed over, and numbers that a producer
-- took without sending an instruction.
WITH passed AS (
    SELECT gap.gap_id, gap.outbox_id, instruction.instruction_id, gap.participant_id, gap.sequence_id,
        gap.who, gap.reason, gap.at
    FROM penstock.outbox_gap AS gap JOIN penstock.outbox_instruction AS instruction USING (outbox_id)
    WHERE ($1::text IS NULL OR gap.participant_id = $1) AND gap.gap_id > $2
    ORDER BY gap.gap_id
    LIMIT $3
), taken AS (
    SELECT number.gap_id, NULL::uuid AS outbox_id, NULL::text AS instruction_id, number.participant_id,
        number.sequence_id, number.who, 'taken with bump_participant_outbox_seq and not used' AS reason,
        number.at
    FROM penstock.outbox_taken_number AS number
    WHERE ($1::text IS NULL OR number.participant_id = $1) AND number.gap_id > $2
    ORDER BY number.gap_id
    LIMIT $3
)
SELECT * FROM passed UNION ALL SELECT * FROM taken
ORDER BY gap_id
LIMIT $3;
