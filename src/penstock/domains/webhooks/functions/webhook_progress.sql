-- Return one status for all deliveries of an event. An event without a delivery is delivered, but
-- at no instant: nothing was sent, and a paused subscription may still want it.
CREATE OR REPLACE FUNCTION penstock.webhook_progress(of_event bigint)
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
        CASE WHEN bool_and(status = 'delivered') THEN max(delivered_at) END,
        max(changed_at)
    FROM penstock.webhook_deliveries(of_event)
$$;
