-- Write results of recipients, and return the mails whose lease is still valid.
SELECT penstock.record_mail_results($1::jsonb);
