-- The head was looked at.
DELETE FROM penstock.outbox_recheck WHERE participant_id = $1;
