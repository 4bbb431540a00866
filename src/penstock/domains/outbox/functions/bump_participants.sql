-- Take the next numbers of participants, one for each entry: a participant that is named three times
-- gets three. Returns the first number of each. The row is created at the first use, and its lock is
-- kept until the transaction ends: numbers are committed in their order, and a rollback leaves no gap.
-- Rows are locked in sorted order, so that two producers with the same participants cannot deadlock.
CREATE OR REPLACE FUNCTION penstock.bump_participants(participant_ids text[])
RETURNS TABLE (participant_id text, first_sequence_id bigint)
LANGUAGE sql AS $$
    WITH wanted AS MATERIALIZED (
        SELECT w.participant_id, count(*) AS numbers
        FROM unnest(bump_participants.participant_ids) AS w (participant_id)
        GROUP BY w.participant_id
    ), bumped AS (
        INSERT INTO penstock.participant_outbox_sequences AS known (participant_id, next_sequence_id)
        SELECT wanted.participant_id, 1 + wanted.numbers
        FROM wanted
        ORDER BY wanted.participant_id
        ON CONFLICT (participant_id) DO UPDATE
            SET next_sequence_id = known.next_sequence_id + excluded.next_sequence_id - 1
        RETURNING known.participant_id, known.next_sequence_id
    )
    SELECT bumped.participant_id, bumped.next_sequence_id - wanted.numbers
    FROM bumped JOIN wanted USING (participant_id)
$$;
