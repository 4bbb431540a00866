-- Remove the sums of days that ended more than $2 days ago, with what was counted in them, and return how
-- many sums. No limit looks at them any more.
WITH counted AS (
    DELETE FROM penstock.outbox_charge
    WHERE day < (coalesce($1::timestamptz, now()) AT TIME ZONE 'UTC')::date - $2::integer
), removed AS (
    DELETE FROM penstock.outbox_day_total
    WHERE day < (coalesce($1::timestamptz, now()) AT TIME ZONE 'UTC')::date - $2::integer
    RETURNING day
)
SELECT count(*) FROM removed;
