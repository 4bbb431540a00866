-- Let a replay send to the recipients that did not get the mail; what was sent stays sent.
DELETE FROM penstock.mail_result WHERE mail_id = $1 AND result IN ('failed', 'suppressed');
