-- Note that a relay takes mails again; returns whether it did not before.
UPDATE penstock.mail_relay_state SET is_failing = false, changed_at = now()
WHERE relay = $1 AND is_failing
RETURNING true;
