-- Add an address to those that get no mail. A complaint or a bounce is not replaced by
-- unsubscribing, which stops newsletters only.
INSERT INTO penstock.mail_suppression AS known (
    address, reason, expires_at, mail_id, created_at, created_by)
VALUES ($1, $2, $3, $4, now(), $5)
ON CONFLICT (address) DO UPDATE SET
    reason = excluded.reason, expires_at = excluded.expires_at, mail_id = excluded.mail_id,
    created_at = excluded.created_at, created_by = excluded.created_by
    WHERE excluded.reason <> 'unsubscribe' OR known.expires_at <= now();
