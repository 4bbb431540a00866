-- Make a subscription from checked columns, given as one JSON object.
INSERT INTO penstock.webhook_subscription (
    subscription_id, tenant, profile, url, event_types, filter, filter_path, ordering_path,
    description, state, rate_limit, concurrency, timeout, retry_schedule, sealed_headers,
    header_names, created_at, updated_at)
SELECT $1, $2, $3, url, event_types, filter, filter_path, ordering_path, description, 'active',
    rate_limit, concurrency, timeout, retry_schedule, sealed_headers, header_names, now(), now()
FROM jsonb_populate_record(NULL::penstock.webhook_subscription, $4::jsonb)
RETURNING subscription_no;
