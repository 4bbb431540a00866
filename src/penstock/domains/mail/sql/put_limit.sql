-- Create a limit, or replace the one of this scope and name.
INSERT INTO penstock.mail_limit (scope, name, per_second, per_minute, per_hour, per_day)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, name) DO UPDATE SET
    per_second = excluded.per_second, per_minute = excluded.per_minute,
    per_hour = excluded.per_hour, per_day = excluded.per_day;
