-- End the suspension of a participant.
DELETE FROM penstock.outbox_suspension WHERE participant_id = $1 RETURNING reason, outbox_id;
