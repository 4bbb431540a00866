-- The mails that are to be sent now, which recipients have a result already, and which are
-- suppressed. One row per place, also where a mail is gone.
SELECT mail.id, mail.accepted_at, mail.sender, mail.sender_name, mail.recipients::text,
    mail.reply_to::text, mail.subject, mail.text, mail.html, mail.headers::text, mail.tags,
    mail.attachments::text, mail.relay, mail.is_unsubscribable, known.recipient_nos, known.sent,
    known.reason, suppressed.addresses
FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (id, place)
LEFT JOIN LATERAL (
    SELECT * FROM penstock.mail WHERE mail.id = asked.id LIMIT 1
) AS mail ON true
LEFT JOIN LATERAL (
    SELECT array_agg(recipient_no) AS recipient_nos,
        count(*) FILTER (WHERE result IN ('sent', 'captured')) AS sent,
        min(concat_ws(' ', coalesce(code::text, class), enhanced, reply)) FILTER (WHERE result = 'failed')
            AS reason
    FROM penstock.mail_result WHERE mail_id = asked.id
) AS known ON true
LEFT JOIN LATERAL (
    SELECT array_agg(s.address) AS addresses
    FROM penstock.mail_suppression AS s
    WHERE s.address = ANY (mail.addresses) AND (s.expires_at IS NULL OR s.expires_at > now())
        AND NOT mail.overrides_suppression
        -- A recipient who unsubscribed from newsletters must still be able to reset a password.
        AND (s.reason <> 'unsubscribe' OR mail.is_unsubscribable OR mail.lane = 'penstock.mail.bulk')
) AS suppressed ON true
ORDER BY asked.place;
