-- Take the next number of a participant's instructions, from 1 on. Whoever takes a number must send the
-- instruction with it in the same transaction, as an INSERT into payment_outbox_pending does; without
-- it, penstock.send_instruction takes the number itself.
CREATE OR REPLACE FUNCTION penstock.bump_participant_outbox_seq(participant_id text) RETURNS bigint
LANGUAGE sql AS $$
    SELECT first_sequence_id
    FROM penstock.bump_participants(ARRAY[bump_participant_outbox_seq.participant_id])
$$;
