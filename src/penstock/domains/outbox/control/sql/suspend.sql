-- Suspend a participant; a repeat replaces the reason, and keeps the failed instruction.
INSERT INTO penstock.outbox_suspension AS known (participant_id, reason, who, at)
VALUES ($1, $2, $3, now())
ON CONFLICT (participant_id) DO UPDATE
SET reason = excluded.reason, who = excluded.who, at = excluded.at
RETURNING participant_id, reason, who, at, outbox_id;
