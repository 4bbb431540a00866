-- Remove a code and return its class.
DELETE FROM penstock.outbox_code WHERE code_set = $1 AND code = $2 RETURNING class;
