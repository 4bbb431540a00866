-- Numbers that were taken with bump_participant_outbox_seq; an INSERT into payment_outbox_pending with
-- the number removes its row. What stays is a hole in the numbers of a participant, which nothing else
-- shows. `gap_id` is from the same sequence as those of gaps, so that both are one list.
CREATE TABLE penstock.outbox_taken_number (
    participant_id text COLLATE "C" NOT NULL,
    sequence_id bigint NOT NULL,
    gap_id bigint NOT NULL DEFAULT nextval('penstock.outbox_gap_gap_id_seq'),
    who text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (participant_id, sequence_id)
);
CREATE INDEX outbox_taken_number_in_order ON penstock.outbox_taken_number (gap_id);
