-- Remove an address, and say whether it was there.
DELETE FROM penstock.mail_suppression WHERE address = $1 RETURNING true;
