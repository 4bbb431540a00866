-- Whether a relay of this name exists, also a disabled one: a mail for it waits.
SELECT EXISTS (SELECT FROM penstock.mail_relay WHERE name = $1);
