-- Insert a replay of the events that exist now.
INSERT INTO penstock.webhook_replay (
    tenant, subscription_no, event_types, from_at, until_at, which, rate, state, counted,
    next_event_no, end_event_no, next_due_at, created_at, created_by)
SELECT tenant, subscription_no, $2::text[], $3::timestamptz, coalesce($4::timestamptz, now()), $5,
    $6::float8, 'running', 0, penstock.first_event_since($3),
    (SELECT coalesce(max(event_no), 0) + 1 FROM penstock.webhook_event), now(), now(), $7
FROM penstock.webhook_subscription
WHERE subscription_no = $1
RETURNING replay_no;
