-- Accept many mails of one lane, in their order.
SELECT mail_id, is_new
FROM penstock.send_mails($1, $2::text[]::jsonb[], coalesce($3::timestamptz, now()))
ORDER BY index;
