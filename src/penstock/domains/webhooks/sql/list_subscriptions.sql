-- A page of subscriptions, of one tenant or of all.
SELECT subscription_no, subscription_id, tenant, url, event_types, filter::text, ordering_path,
    description, state, state_reason, profile, rate_limit, concurrency, timeout, retry_schedule,
    header_names, created_at, updated_at, version
FROM penstock.webhook_subscription
WHERE ($1::text IS NULL OR tenant = $1) AND subscription_no > $2 AND state <> 'deleted'
ORDER BY subscription_no
LIMIT $3;
