-- Take the next number of a participant's instructions, from 1 on. Whoever takes a number must send the
-- instruction with it in the same transaction, as an INSERT into payment_outbox_pending does; without
-- it, penstock.send_instruction takes the number itself. A number that is not used is listed as a gap.
CREATE OR REPLACE FUNCTION penstock.bump_participant_outbox_seq(participant_id text) RETURNS bigint
LANGUAGE sql AS $$
    WITH taken AS MATERIALIZED (
        SELECT bumped.participant_id, bumped.first_sequence_id
        FROM penstock.bump_participants(ARRAY[bump_participant_outbox_seq.participant_id]) AS bumped
    ), noted AS (
        INSERT INTO penstock.outbox_taken_number (participant_id, sequence_id, who, at)
        SELECT taken.participant_id, taken.first_sequence_id, 'sql:' || session_user, now() FROM taken
    )
    SELECT first_sequence_id FROM taken
$$;
