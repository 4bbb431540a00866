-- Record that a number of a participant was passed over.
INSERT INTO penstock.outbox_gap (outbox_id, participant_id, sequence_id, who, reason, at)
VALUES ($1, $2, $3, $4, $5, now());
