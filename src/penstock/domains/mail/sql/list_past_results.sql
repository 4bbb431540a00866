-- Results of a mail before its replays, the oldest first.
SELECT past.recipient_no, mail.recipients #>> ARRAY[past.recipient_no::text, 'address', 'address'] AS address,
    past.result, past.class, past.phase, past.code, past.enhanced, past.reply, past.relay, past.at,
    past.replayed_at
FROM penstock.mail_past_result AS past
JOIN penstock.mail ON mail.id = past.mail_id
WHERE past.mail_id = $1
ORDER BY past.replayed_at, past.recipient_no;
