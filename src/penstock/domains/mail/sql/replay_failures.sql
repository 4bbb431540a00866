-- Let a replay send to the recipients that did not get the mail; what was sent stays sent.
WITH past AS (
    DELETE FROM penstock.mail_result
    WHERE mail_id = $1 AND result IN ('failed', 'suppressed')
    RETURNING mail_id, recipient_no, result, class, phase, code, enhanced, reply, relay, token, at
)
INSERT INTO penstock.mail_past_result (
    mail_id, recipient_no, result, class, phase, code, enhanced, reply, relay, token, at, replayed_at)
SELECT mail_id, recipient_no, result, class, phase, code, enhanced, reply, relay, token, at, now()
FROM past;
