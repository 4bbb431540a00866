-- Remove a relay, and say whether there was one.
DELETE FROM penstock.mail_relay WHERE name = $1 RETURNING true;
