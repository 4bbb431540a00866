-- Accept one mail in the caller's transaction. Written so that it runs in any driver: CAST, not ::.
SELECT mail_id, is_new
FROM penstock.send_mails($1, ARRAY[CAST($2 AS jsonb)], coalesce(CAST($3 AS timestamptz), now()));
