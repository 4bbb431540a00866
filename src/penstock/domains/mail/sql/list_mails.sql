-- Mails that match, the newest first, with their state, which is looked up one by one.
SELECT outbox.*
FROM (
    SELECT mail.id
    FROM penstock.mail
    WHERE mail.id < $1
        AND ($2::text IS NULL OR mail.addresses @> ARRAY[$2])
        AND ($3::text IS NULL OR mail.tags @> ARRAY[$3])
        AND ($4::timestamptz IS NULL OR mail.accepted_at >= $4)
        AND ($5::timestamptz IS NULL OR mail.accepted_at < $5)
    ORDER BY mail.id DESC
    LIMIT $6
) AS found
CROSS JOIN LATERAL (
    SELECT id, status, retry_count, next_attempt_at, last_error, last_attempt_at, lane, sender,
        recipients, subject, tags, relay, created_at, ended_at, recipients_sent, recipients_failed
    FROM penstock.mail_outbox WHERE mail_outbox.id = found.id
    LIMIT 1
) AS outbox
ORDER BY outbox.id DESC;
