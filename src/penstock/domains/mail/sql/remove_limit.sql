-- Remove a limit.
DELETE FROM penstock.mail_limit WHERE scope = $1 AND name = $2;
