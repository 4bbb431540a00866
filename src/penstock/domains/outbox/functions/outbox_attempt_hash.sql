-- Return the hash that stands for one row of the archive, with the content of its instruction. The binary
-- form of a record keeps NULL, the empty string and every digit apart, does not depend on the session
-- (the client's encoding is UTF-8), and takes half as long as its text. A change here makes every
-- sealed row look changed.
CREATE OR REPLACE FUNCTION penstock.outbox_attempt_hash(
    a penstock.outbox_attempt, i penstock.outbox_instruction
) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(record_send(ROW(
        a.attempt_id, a.outbox_id, a.attempt_no, a.state, a.claimed_at, a.completed_at,
        a.rail_reference, a.rail_code, a.error_code, a.error_message, a.latency_ms, a.created_at,
        a.token, a.who, a.xid, a.era,
        i.outbox_id, i.item_id, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key,
        i.rail_type, i.payload, i.amount, i.currency, i.created_at, i.created_by
    )))
$$;
