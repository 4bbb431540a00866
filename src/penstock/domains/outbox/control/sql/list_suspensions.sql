-- A page of suspended participants.
SELECT participant_id, reason, who, at, outbox_id
FROM penstock.outbox_suspension
WHERE participant_id > $1
ORDER BY participant_id
LIMIT $2;
