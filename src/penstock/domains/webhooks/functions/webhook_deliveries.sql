-- Return the latest delivery of one event to each subscription, all or one page of them. Attempts
-- are those that were made, without snoozes.
CREATE OR REPLACE FUNCTION penstock.webhook_deliveries(
    of_event bigint, after_subscription integer DEFAULT 0, rows_max bigint DEFAULT NULL
)
RETURNS TABLE (
    subscription_id text, item_id bigint, status text, attempts bigint, next_attempt_at timestamptz,
    last_error text, delivered_at timestamptz, changed_at timestamptz, subscription_no integer
)
LANGUAGE sql STABLE
-- A few rows are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    WITH latest AS MATERIALIZED (
        SELECT DISTINCT ON (delivery.subscription_no) delivery.subscription_no, delivery.item_id
        FROM penstock.webhook_delivery AS delivery
        WHERE delivery.event_no = of_event AND delivery.subscription_no > after_subscription
        ORDER BY delivery.subscription_no, delivery.item_id DESC
        LIMIT rows_max
    ), place AS MATERIALIZED (
        -- Grouped instead of joined: with thousands of deliveries, a join of two lists that have no
        -- index takes seconds.
        SELECT known.item_id, max(known.subscription_no) AS subscription_no,
            max(known.state) AS state, max(known.due_at) AS due_at, max(known.reason) AS reason,
            max(known.attempts) AS attempts
        FROM (
            SELECT latest.item_id, latest.subscription_no, NULL AS state,
                NULL::timestamptz AS due_at, NULL AS reason, NULL::integer AS attempts
            FROM latest
            UNION ALL
            SELECT located.id, NULL, located.state, located.due_at, located.reason, located.attempts
            FROM penstock.locate(ARRAY(SELECT latest.item_id FROM latest)) AS located
        ) AS known
        GROUP BY known.item_id
    )
    SELECT subscription.subscription_id, place.item_id,
        CASE
            WHEN known.state = 'done' THEN 'delivered'
            WHEN known.state IN ('dead', 'cancelled') THEN 'failed'
            WHEN place.attempts > 0 THEN 'retrying'
            ELSE 'pending'
        END,
        tried.attempts, place.due_at,
        CASE WHEN known.state = 'cancelled' THEN 'cancelled' ELSE coalesce(tried.last_error, place.reason) END,
        tried.delivered_at, tried.changed_at, place.subscription_no
    FROM place
    -- Looked up one by one: with a join the planner may scan all subscriptions.
    CROSS JOIN LATERAL (
        SELECT s.subscription_id FROM penstock.webhook_subscription AS s
        WHERE s.subscription_no = place.subscription_no
        LIMIT 1
    ) AS subscription
    CROSS JOIN LATERAL (
        SELECT coalesce(
            place.state,
            CASE WHEN penstock.webhook_was_delivered(place.item_id) THEN 'done' ELSE 'cancelled' END)
    ) AS known (state)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE outcome <> 'snooze') AS attempts,
            (array_agg(reason ORDER BY attempt DESC) FILTER (WHERE reason IS NOT NULL))[1] AS last_error,
            max(settled_at) FILTER (WHERE outcome = 'done') AS delivered_at,
            max(settled_at) AS changed_at
        FROM penstock.attempt
        WHERE attempt.item_id = place.item_id
    ) AS tried
    ORDER BY place.subscription_no
$$;
