-- Return how far one mail is, in the words of the document. Attempts that count are those that
-- failed: a snoozed attempt does not count. A replay counts from zero again. `next_attempt_at` is
-- never NULL: of a mail that has ended, it is the instant from which its last attempt was allowed.
-- `last_error` is what a relay has said last; that a mail waits for a gate is shown only if there
-- is nothing else.
CREATE OR REPLACE FUNCTION penstock.mail_progress(of_mail bigint)
RETURNS TABLE (
    status text, retry_count integer, next_attempt_at timestamptz, last_attempt_at timestamptz,
    last_error text, ended_at timestamptz, recipients_sent bigint, recipients_failed bigint
)
LANGUAGE sql STABLE
-- A few rows are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    SELECT
        CASE place.state
            WHEN 'leased' THEN 'dispatching'
            WHEN 'done' THEN 'sent'
            WHEN 'dead' THEN 'failed'
            WHEN 'held' THEN 'failed'
            WHEN 'cancelled' THEN 'cancelled'
            ELSE 'queued'
        END,
        coalesce(place.attempt - place.forgiven, tried.failed_since_last_end),
        coalesce(place.due_at, instant.latest_at),
        greatest(place.claimed_at, tried.last_claimed_at),
        CASE
            WHEN place.state = 'done' THEN NULL
            WHEN place.state = 'held' THEN left('held: ' || place.reason, 500)
            ELSE left(coalesce(tried.last_error, place.reason, tried.last_reason), 500)
        END,
        CASE
            WHEN place.state = 'done' THEN tried.last_settled_at
            ELSE place.ended_at
        END,
        recipient.sent, recipient.failed
    FROM penstock.mail_place(of_mail) AS place
    CROSS JOIN LATERAL (
        SELECT max(claimed_at) AS last_claimed_at, max(settled_at) AS last_settled_at,
            (array_agg(reason ORDER BY attempt DESC))[1] AS last_reason,
            (array_agg(reason ORDER BY attempt DESC) FILTER (
                WHERE reason NOT IN (
                    'circuit_open', 'cooldown', 'concurrency_limited', 'rate_limited')
            ))[1] AS last_error,
            count(*) FILTER (
                WHERE outcome IN ('retry', 'lost') AND attempt > coalesce((
                    SELECT max(earlier.attempt) FROM penstock.attempt AS earlier
                    WHERE earlier.item_id = of_mail AND earlier.outcome IN ('dead', 'hold')), 0)
            )::integer AS failed_since_last_end
        FROM penstock.attempt
        WHERE item_id = of_mail
    ) AS tried
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE result IN ('sent', 'captured')) AS sent,
            count(*) FILTER (WHERE result IN ('failed', 'suppressed')) AS failed
        FROM penstock.mail_result WHERE mail_id = of_mail
    ) AS recipient
    CROSS JOIN LATERAL (
        SELECT max(due_at) AS latest_at FROM penstock.due_instant WHERE item_id = of_mail
    ) AS instant
$$;
