-- Send what is inserted into the view payment_outbox_pending. The row that RETURNING shows is the stored
-- one, also of an instruction that was known before. A given sequence_id must be the number that
-- bump_participant_outbox_seq has just returned: it is given back and taken again, so that nothing is
-- left of it if the instruction is known already. The number of the stored instruction is taken as a
-- repeat: a producer that did not see its commit inserts the same row again.
CREATE OR REPLACE FUNCTION penstock.insert_payment_outbox_pending() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    sent record;
BEGIN
    IF NEW.attempt_count <> 0 THEN
        RAISE EXCEPTION 'attempt_count must be 0: an instruction begins without attempts'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NEW.created_at <> now() THEN
        RAISE EXCEPTION 'created_at must be now(), or left out' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NEW.sequence_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM penstock.outbox_instruction AS known
        WHERE (known.participant_id, known.sequence_id) = (NEW.participant_id, NEW.sequence_id)
            AND known.instruction_id = NEW.instruction_id
            AND known.idempotency_key = NEW.idempotency_key)
    THEN
        UPDATE penstock.participant_outbox_sequences
        SET next_sequence_id = next_sequence_id - 1
        WHERE participant_id = NEW.participant_id AND next_sequence_id = NEW.sequence_id + 1
            AND NOT EXISTS (
                SELECT FROM penstock.outbox_instruction AS known
                WHERE (known.participant_id, known.sequence_id)
                    = (NEW.participant_id, NEW.sequence_id));
        IF NOT FOUND THEN
            RAISE EXCEPTION 'sequence_id % is not the last number of participant %',
                NEW.sequence_id, quote_nullable(NEW.participant_id)
                USING ERRCODE = 'invalid_parameter_value',
                HINT = 'take it with bump_participant_outbox_seq right before, or leave it out';
        END IF;
        DELETE FROM penstock.outbox_taken_number
        WHERE participant_id = NEW.participant_id AND sequence_id = NEW.sequence_id;
    END IF;

    SELECT s.* INTO sent
    FROM penstock.send_instructions(
        ARRAY[NEW.instruction_id], ARRAY[NEW.participant_id], ARRAY[NEW.idempotency_key],
        ARRAY[NEW.rail_type], ARRAY[NEW.payload], ARRAY[NEW.next_attempt_at], ARRAY[NEW.outbox_id]) AS s;
    SELECT i.outbox_id, i.sequence_id, p.attempt_count, coalesce(p.next_attempt_at, i.created_at), i.created_at
    INTO NEW.outbox_id, NEW.sequence_id, NEW.attempt_count, NEW.next_attempt_at, NEW.created_at
    FROM penstock.outbox_instruction AS i
    JOIN penstock.outbox_progress(ARRAY[sent.outbox_id]) AS p USING (outbox_id)
    WHERE i.outbox_id = sent.outbox_id;
    RETURN NEW;
END $$;
