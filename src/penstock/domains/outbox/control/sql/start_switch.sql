-- Start again what was stopped.
DELETE FROM penstock.outbox_switch WHERE scope = $1 AND name = $2 RETURNING reason;
