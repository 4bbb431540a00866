-- The recipients of a mail, in their order, with their results if there are any.
SELECT place - 1 AS recipient_no, recipient ->> 'kind' AS kind,
    recipient #>> '{address,address}' AS address, result.result, result.class, result.phase,
    result.code, result.enhanced, result.reply, result.relay, result.at
FROM penstock.mail
CROSS JOIN LATERAL jsonb_array_elements(mail.recipients) WITH ORDINALITY AS r (recipient, place)
LEFT JOIN penstock.mail_result AS result
    ON result.mail_id = mail.id AND result.recipient_no = place - 1
WHERE mail.id = $1
ORDER BY place;
