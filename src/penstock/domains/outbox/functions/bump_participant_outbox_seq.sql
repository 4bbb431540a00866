-- Take the next number of a participant's instructions, from 1 on. Whoever takes a number must send the
-- instruction with it in the same transaction, as an INSERT into payment_outbox_pending does; without
-- it, penstock.send_instruction takes the number itself. A number that is not used is listed as a gap.
-- Raises 22023 for an id that no instruction can have: the gap would stay for ever.
CREATE OR REPLACE FUNCTION penstock.bump_participant_outbox_seq(participant_id text) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    taken bigint;
BEGIN
    IF coalesce(length(bump_participant_outbox_seq.participant_id), 0) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'participant_id: must have 1 to 255 characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT bumped.first_sequence_id INTO taken
    FROM penstock.bump_participants(ARRAY[bump_participant_outbox_seq.participant_id]) AS bumped;
    INSERT INTO penstock.outbox_taken_number (participant_id, sequence_id, who, at)
    VALUES (bump_participant_outbox_seq.participant_id, taken, 'sql:' || session_user, now());
    RETURN taken;
END $$;
