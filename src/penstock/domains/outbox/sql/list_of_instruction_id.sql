-- The same for one instruction_id, which has an instruction for each of its keys.
WITH looked AS MATERIALIZED (
    SELECT * FROM penstock.outbox_instruction
    WHERE outbox_id = ANY (ARRAY(
            SELECT outbox_id FROM penstock.outbox_idempotency WHERE instruction_id = $3))
        AND item_id < $1
    ORDER BY item_id DESC
    LIMIT $2
)
SELECT i.item_id, i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key,
    i.rail_type, i.amount, i.currency, i.created_at, i.created_by, p.state, p.item_state, p.reason,
    p.next_attempt_at, p.attempt_count, p.last_error, p.rail_reference
FROM looked AS i
JOIN penstock.outbox_progress(ARRAY(SELECT outbox_id FROM looked)) AS p USING (outbox_id)
ORDER BY i.item_id DESC;
