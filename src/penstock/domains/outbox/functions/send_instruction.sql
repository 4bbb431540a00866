-- Accept one payment instruction in the caller's transaction; see send_instructions.
CREATE OR REPLACE FUNCTION penstock.send_instruction(
    instruction_id text,
    participant_id text,
    idempotency_key text,
    rail_type text,
    payload jsonb,
    next_attempt_at timestamptz DEFAULT NULL
) RETURNS TABLE (outbox_id uuid, sequence_id bigint, is_new boolean)
LANGUAGE sql AS $$
    SELECT sent.outbox_id, sent.sequence_id, sent.is_new
    FROM penstock.send_instructions(
        ARRAY[instruction_id], ARRAY[participant_id], ARRAY[idempotency_key], ARRAY[rail_type],
        ARRAY[payload], ARRAY[next_attempt_at]) AS sent
$$;
