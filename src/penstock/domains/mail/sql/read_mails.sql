-- Mails with their state, which is looked up one by one, the newest first.
SELECT outbox.*
FROM unnest($1::bigint[]) AS found (id)
CROSS JOIN LATERAL (
    SELECT id, status, retry_count, next_attempt_at, last_error, last_attempt_at, lane, sender,
        recipients, subject, tags, relay, created_at, ended_at, recipients_sent, recipients_failed
    FROM penstock.mail_outbox WHERE mail_outbox.id = found.id
    LIMIT 1
) AS outbox
ORDER BY outbox.id DESC;
