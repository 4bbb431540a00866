-- How far events are: derived from what the kernel knows about the items that carry them.

CREATE VIEW penstock.webhook_delivery AS
SELECT event.event_no, d.subscription_no, d.item_id, NULL::bigint AS replay_no
FROM penstock.webhook_event AS event
CROSS JOIN LATERAL unnest(event.subscription_nos, event.item_ids) AS d (subscription_no, item_id)
UNION ALL
SELECT event_no, subscription_no, item_id, replay_no FROM penstock.webhook_redelivery;

-- The deliveries of one event, one for each subscription: the latest. Attempts are those that were
-- made, not those that an open breaker or a limit has put off.
CREATE FUNCTION penstock.webhook_deliveries(of_event bigint)
RETURNS TABLE (
    subscription_id text, item_id bigint, status text, attempts bigint, next_attempt_at timestamptz,
    last_error text, delivered_at timestamptz, changed_at timestamptz
)
LANGUAGE sql STABLE
-- A few rows are looked up one by one, whatever old statistics make the planner think.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    WITH latest AS MATERIALIZED (
        SELECT DISTINCT ON (subscription_no) subscription_no, item_id
        FROM penstock.webhook_delivery
        WHERE event_no = of_event
        ORDER BY subscription_no, item_id DESC
    ), place AS MATERIALIZED (
        SELECT located.* FROM penstock.locate(ARRAY(SELECT item_id FROM latest)) AS located
    )
    SELECT subscription.subscription_id, latest.item_id,
        CASE
            -- Dead ones are kept; what retention has dropped was delivered.
            WHEN place.state IS NULL OR place.state = 'done' THEN 'delivered'
            WHEN place.state IN ('dead', 'cancelled') THEN 'failed'
            WHEN place.attempts > 0 THEN 'retrying'
            ELSE 'pending'
        END,
        tried.attempts, place.due_at, coalesce(tried.last_error, place.reason), tried.delivered_at,
        tried.changed_at
    FROM latest
    JOIN penstock.webhook_subscription AS subscription USING (subscription_no)
    LEFT JOIN place ON place.id = latest.item_id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE outcome <> 'snooze') AS attempts,
            (array_agg(reason ORDER BY attempt DESC) FILTER (WHERE reason IS NOT NULL))[1] AS last_error,
            max(settled_at) FILTER (WHERE outcome = 'done') AS delivered_at,
            max(settled_at) AS changed_at
        FROM penstock.attempt
        WHERE attempt.item_id = latest.item_id
    ) AS tried
    ORDER BY latest.subscription_no
$$;

-- All attempts that were made to deliver one event; what was put off is none, and not counted.
CREATE FUNCTION penstock.webhook_attempts(of_event bigint)
RETURNS TABLE (
    subscription_id text, item_id bigint, attempt integer, outcome text, status_code integer,
    response_body text, error text, duration_ms integer, settled_at timestamptz
)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    SELECT subscription.subscription_id, delivery.item_id,
        row_number() OVER (PARTITION BY delivery.item_id ORDER BY attempt.attempt)::integer,
        attempt.outcome, (attempt.result ->> 'status')::integer, attempt.result ->> 'response', attempt.reason,
        attempt.duration_ms, attempt.settled_at
    FROM penstock.webhook_delivery AS delivery
    JOIN penstock.webhook_subscription AS subscription USING (subscription_no)
    JOIN penstock.attempt ON attempt.item_id = delivery.item_id AND attempt.outcome <> 'snooze'
    WHERE delivery.event_no = of_event
    ORDER BY attempt.settled_at, delivery.item_id, attempt.attempt
$$;

-- One status for many deliveries. An event that nobody wants is delivered.
CREATE FUNCTION penstock.webhook_progress(of_event bigint)
RETURNS TABLE (
    status text, attempts bigint, next_attempt_at timestamptz, last_error text,
    delivered_at timestamptz, changed_at timestamptz
)
LANGUAGE sql STABLE AS $$
    SELECT
        CASE
            WHEN bool_or(status = 'retrying') THEN 'retrying'
            WHEN bool_or(status = 'pending') THEN 'pending'
            WHEN bool_and(status = 'failed') THEN 'failed'
            WHEN bool_or(status = 'failed') THEN 'partly'
            ELSE 'delivered'
        END,
        coalesce(sum(attempts), 0)::bigint, min(next_attempt_at),
        (array_agg(last_error) FILTER (WHERE last_error IS NOT NULL AND status <> 'delivered'))[1],
        CASE
            WHEN count(*) = 0 THEN (
                SELECT accepted_at FROM penstock.webhook_event WHERE event_no = of_event)
            WHEN bool_and(status = 'delivered') THEN max(delivered_at)
        END,
        max(changed_at)
    FROM penstock.webhook_deliveries(of_event)
$$;

-- The same under the names of the dispatcher that this replaces, for people who know them.
CREATE VIEW penstock.events AS
SELECT event.event_id AS id, event.type, event.source, event.data::jsonb AS data, progress.status,
    progress.attempts, lane.max_attempts, progress.next_attempt_at, progress.last_error,
    event.accepted_at AS created_at,
    coalesce(progress.changed_at, event.accepted_at) AS updated_at, progress.delivered_at,
    event.tenant
FROM penstock.webhook_event AS event
CROSS JOIN LATERAL penstock.webhook_progress(event.event_no) AS progress
LEFT JOIN penstock.lane ON lane.name = 'webhooks';

CREATE VIEW penstock.delivery_attempts AS
SELECT attempt.item_id || '-' || attempt.attempt AS id, event.event_id,
    attempt.attempt AS attempt_number, attempt.status_code, attempt.response_body, attempt.error,
    attempt.duration_ms, attempt.settled_at AS created_at, attempt.subscription_id, event.tenant
FROM penstock.webhook_event AS event
CROSS JOIN LATERAL penstock.webhook_attempts(event.event_no) AS attempt;

CREATE VIEW penstock.subscriptions AS
SELECT subscription_id AS id, url, event_types, rate_limit, created_at, state = 'active' AS active,
    tenant
FROM penstock.webhook_subscription
WHERE state <> 'deleted';
