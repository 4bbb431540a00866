-- Return the latest delivery of one event to each subscription. Attempts are those that were made,
-- without snoozes.
CREATE OR REPLACE FUNCTION penstock.webhook_deliveries(of_event bigint)
RETURNS TABLE (
    subscription_id text, item_id bigint, status text, attempts bigint, next_attempt_at timestamptz,
    last_error text, delivered_at timestamptz, changed_at timestamptz
)
LANGUAGE sql STABLE
-- A few rows are looked up one by one; with stale statistics the planner may scan tables instead.
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
            WHEN known.state = 'done' THEN 'delivered'
            WHEN known.state IN ('dead', 'cancelled') THEN 'failed'
            WHEN place.attempts > 0 THEN 'retrying'
            ELSE 'pending'
        END,
        tried.attempts, place.due_at,
        CASE WHEN known.state = 'cancelled' THEN 'cancelled' ELSE coalesce(tried.last_error, place.reason) END,
        tried.delivered_at, tried.changed_at
    FROM latest
    JOIN penstock.webhook_subscription AS subscription USING (subscription_no)
    LEFT JOIN place ON place.id = latest.item_id
    CROSS JOIN LATERAL (
        SELECT coalesce(
            place.state,
            CASE WHEN penstock.webhook_was_delivered(latest.item_id) THEN 'done' ELSE 'cancelled' END)
    ) AS known (state)
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
