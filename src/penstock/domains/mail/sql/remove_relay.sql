-- Remove a relay, and say whether there was one.
WITH forgotten AS (
    DELETE FROM penstock.mail_relay_state WHERE relay = $1
)
DELETE FROM penstock.mail_relay WHERE name = $1 RETURNING true;
