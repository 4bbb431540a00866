-- Return all attempts that were made to deliver one event; snoozes are left out.
CREATE OR REPLACE FUNCTION penstock.webhook_attempts(of_event bigint)
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
