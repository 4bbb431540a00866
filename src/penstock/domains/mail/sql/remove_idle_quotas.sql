-- Delete what was counted for limits in an hour or a day that is over.
DELETE FROM penstock.mail_quota WHERE starts_at < coalesce($1::timestamptz, now()) - interval '2 days';
