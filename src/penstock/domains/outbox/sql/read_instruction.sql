-- One instruction, and how far it is.
SELECT i.item_id, i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key,
    i.rail_type, i.amount, i.currency, i.created_at, i.created_by, p.state, p.item_state, p.reason,
    p.next_attempt_at, p.attempt_count, p.last_error, p.rail_reference, i.payload::text AS payload
FROM penstock.outbox_instruction AS i
JOIN penstock.outbox_progress(ARRAY[$1::uuid]) AS p USING (outbox_id)
WHERE i.outbox_id = $1;
