-- Write a failed result for each recipient of dead mails that has none. Returns what was written,
-- so that two callers never announce the same. Locked, so that a replay waits, and then removes the
-- results. The token 0 is of no attempt: the mail died without one that wrote results. Mails are
-- looked up one by one (LATERAL with LIMIT): as a join it may scan all of them.
WITH locked AS MATERIALIZED (
    SELECT id, reason FROM penstock.dead WHERE id = ANY ($1::bigint[]) ORDER BY id FOR KEY SHARE
), written AS (
    INSERT INTO penstock.mail_result (mail_id, recipient_no, result, class, reply, token, at)
    SELECT locked.id, recipient.place - 1, 'failed',
        CASE WHEN locked.reason IN ('expired', 'lost') THEN locked.reason ELSE 'unsendable' END,
        left(locked.reason, 500), 0, coalesce($2::timestamptz, now())
    FROM locked
    CROSS JOIN LATERAL (SELECT addresses FROM penstock.mail WHERE mail.id = locked.id LIMIT 1) AS mail
    CROSS JOIN LATERAL generate_subscripts(mail.addresses, 1) AS recipient (place)
    ORDER BY locked.id, recipient.place
    ON CONFLICT DO NOTHING
    RETURNING mail_id, recipient_no, class
)
SELECT written.mail_id, written.recipient_no, written.class, mail.tags,
    mail.recipients #>> ARRAY[written.recipient_no::text, 'address', 'address'] AS recipient
FROM written
CROSS JOIN LATERAL (
    SELECT tags, recipients FROM penstock.mail WHERE mail.id = written.mail_id LIMIT 1
) AS mail
ORDER BY written.mail_id, written.recipient_no;
