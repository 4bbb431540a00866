-- Decide about an instruction whose id is already known: under the same key with the same hash it is the
-- one that exists, and with another hash a conflict. Under another key it is a conflict too, because two
-- keys would pay twice, unless the last one has ended without a payment, and none before it was paid
-- after all: then it is accepted as `new_outbox_id`, and the row of its key is written.
CREATE OR REPLACE FUNCTION penstock.repeat_instruction(
    instruction_id text, idempotency_key text, payload_hash bytea, new_outbox_id uuid
) RETURNS TABLE (outbox_id uuid, is_new boolean, conflict jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known penstock.outbox_idempotency;
BEGIN
    LOOP
        SELECT * INTO known FROM penstock.outbox_idempotency AS i
        WHERE i.instruction_id = repeat_instruction.instruction_id
            AND i.idempotency_key = repeat_instruction.idempotency_key;
        IF known.payload_hash = repeat_instruction.payload_hash THEN
            RETURN QUERY SELECT known.outbox_id, false, NULL::jsonb;
            RETURN;
        END IF;
        IF NOT FOUND THEN
            -- Locked, as for an operator who releases a failed instruction, and for a report of its
            -- payment: one of both is first.
            PERFORM FROM penstock.outbox_idempotency AS i
            WHERE i.instruction_id = repeat_instruction.instruction_id
            ORDER BY i.generation
            FOR UPDATE;
            SELECT * INTO known FROM penstock.outbox_idempotency AS i
            WHERE i.instruction_id = repeat_instruction.instruction_id
            ORDER BY penstock.outbox_is_paid(i.outbox_id) DESC, i.generation DESC
            LIMIT 1;
            IF penstock.outbox_has_failed(known.outbox_id) THEN
                INSERT INTO penstock.outbox_idempotency (
                    instruction_id, idempotency_key, generation, outbox_id, payload_hash)
                VALUES (repeat_instruction.instruction_id, repeat_instruction.idempotency_key,
                    known.generation + 1, new_outbox_id, repeat_instruction.payload_hash)
                ON CONFLICT DO NOTHING;
                IF FOUND THEN
                    RETURN QUERY SELECT new_outbox_id, true, NULL::jsonb;
                    RETURN;
                END IF;
                -- Another transaction was first: compare with what it has written.
                CONTINUE;
            END IF;
        END IF;
        RETURN QUERY SELECT NULL::uuid, false, jsonb_build_object(
            'instruction_id', repeat_instruction.instruction_id,
            'idempotency_key', repeat_instruction.idempotency_key,
            'stored_key', known.idempotency_key, 'outbox_id', known.outbox_id,
            'stored_hash', encode(known.payload_hash, 'hex'),
            'given_hash', encode(repeat_instruction.payload_hash, 'hex'));
        RETURN;
    END LOOP;
END $$;
