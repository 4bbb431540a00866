-- Write a decision, unless there is one.
INSERT INTO penstock.outbox_approval (outbox_id, decision, key_id, reason, decided_at)
VALUES ($1, $2, $3, $4, now())
ON CONFLICT DO NOTHING
RETURNING outbox_id, decision, key_id, reason, decided_at;
