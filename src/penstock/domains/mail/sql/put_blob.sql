-- Keep the content of an attachment.
SELECT penstock.put_mail_blob(CAST($1 AS bytea));
