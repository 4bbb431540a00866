-- One subscription, as its owner sees it.
SELECT subscription_no, subscription_id, tenant, url, event_types, filter::text, ordering_path,
    description, state, state_reason, profile, rate_limit, concurrency, timeout, retry_schedule,
    header_names, created_at, updated_at, version
FROM penstock.webhook_subscription
WHERE subscription_id = $1 AND ($2 OR state <> 'deleted');
