-- Look at the head of a participant again when no worker holds it.
INSERT INTO penstock.outbox_recheck (participant_id, at) VALUES ($1, now())
ON CONFLICT (participant_id) DO UPDATE SET at = excluded.at;
