-- Take one mail out of the quotas per hour and per day of a limit, of both or of none. Returns
-- NULL, or the instant from which there is room again.
CREATE OR REPLACE FUNCTION penstock.take_mail_quota(
    scope text, name text, per_hour integer, per_day integer, at timestamptz DEFAULT clock_timestamp()
) RETURNS timestamptz
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    free_at timestamptz;
BEGIN
    -- Both rows are locked in one order, so that two callers cannot deadlock.
    INSERT INTO penstock.mail_quota (scope, name, period, starts_at, used)
    SELECT take_mail_quota.scope, take_mail_quota.name, period, '-infinity', 0
    FROM (VALUES ('day', per_day), ('hour', per_hour)) AS given (period, most)
    WHERE most IS NOT NULL
    ORDER BY period
    ON CONFLICT DO NOTHING;
    PERFORM FROM penstock.mail_quota AS q
    WHERE q.scope = take_mail_quota.scope AND q.name = take_mail_quota.name
    ORDER BY period
    FOR UPDATE;
    SELECT max(date_trunc(period, take_mail_quota.at, 'UTC') + ('1 ' || period)::interval) INTO free_at
    FROM penstock.mail_quota AS q
    WHERE q.scope = take_mail_quota.scope AND q.name = take_mail_quota.name
        AND q.starts_at = date_trunc(period, take_mail_quota.at, 'UTC')
        AND q.used >= CASE period WHEN 'hour' THEN per_hour ELSE per_day END;
    IF free_at IS NULL THEN
        UPDATE penstock.mail_quota AS q
        SET used = CASE WHEN q.starts_at = date_trunc(period, take_mail_quota.at, 'UTC') THEN used + 1 ELSE 1 END,
            starts_at = date_trunc(period, take_mail_quota.at, 'UTC')
        WHERE q.scope = take_mail_quota.scope AND q.name = take_mail_quota.name;
    END IF;
    RETURN free_at;
END $$;
