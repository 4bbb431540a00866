-- Take one mail out of a limit per hour and day; NULL, or when there is room again, in seconds.
SELECT extract(epoch FROM free_at - clock_timestamp())::float8
FROM penstock.take_mail_quota($1, $2, $3, $4) AS free_at;
