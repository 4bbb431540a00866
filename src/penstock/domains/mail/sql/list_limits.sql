-- All limits; there are a few.
SELECT scope, name, per_second, per_minute, per_hour, per_day
FROM penstock.mail_limit
ORDER BY scope, name;
