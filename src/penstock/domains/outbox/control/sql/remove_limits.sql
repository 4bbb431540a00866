-- Remove the limits of one scope in one currency.
DELETE FROM penstock.outbox_limit WHERE scope = $1 AND name = $2 AND currency = $3;
