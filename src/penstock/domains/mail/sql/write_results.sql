-- Write results of recipients; say whose lease is still valid, and which results are new.
SELECT mail_id, recipient_no, is_fenced, is_new FROM penstock.write_mail_results($1::jsonb);
