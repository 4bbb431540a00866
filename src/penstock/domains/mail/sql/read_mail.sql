-- One mail with its state and its own content, without bodies.
SELECT outbox.id, outbox.status, outbox.retry_count, outbox.next_attempt_at, outbox.last_error,
    outbox.last_attempt_at, outbox.lane, outbox.sender, outbox.recipients, outbox.subject, outbox.tags,
    outbox.relay, outbox.created_at, outbox.ended_at, outbox.recipients_sent, outbox.recipients_failed
FROM penstock.mail_outbox AS outbox
WHERE outbox.id = $1;
