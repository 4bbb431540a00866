-- Mails under the table name and the columns of the outbox that this replaces; the state of each
-- row is computed when it is read. The joined sequence refuses FOR UPDATE, see migration 0001.
CREATE OR REPLACE VIEW penstock.mail_outbox AS
SELECT mail.id, progress.status, progress.retry_count, progress.next_attempt_at, progress.last_error,
    progress.last_attempt_at, mail.lane, mail.sender, mail.addresses AS recipients, mail.subject, mail.tags,
    mail.relay, mail.accepted_at AS created_at, progress.ended_at,
    progress.recipients_sent, progress.recipients_failed
FROM penstock.mail
CROSS JOIN LATERAL penstock.mail_progress(mail.id) AS progress
CROSS JOIN penstock.penstock_worker_sends_mail;
