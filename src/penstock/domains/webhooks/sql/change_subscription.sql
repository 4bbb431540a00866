-- Change the columns that are named, and move the version in any case. NULL if there is none.
UPDATE penstock.webhook_subscription AS s
SET (url, event_types, filter, filter_path, ordering_path, description, state, state_reason,
     rate_limit, concurrency, timeout, retry_schedule, sealed_headers, header_names) = (
        SELECT c.url, c.event_types, c.filter, c.filter_path, c.ordering_path, c.description, c.state,
            CASE WHEN c.state = s.state THEN s.state_reason END,
            c.rate_limit, c.concurrency, c.timeout, c.retry_schedule, c.sealed_headers, c.header_names
        FROM jsonb_populate_record(s, $2::jsonb) AS c),
    updated_at = now(),
    version = version + 1
WHERE subscription_id = $1 AND state <> 'deleted'
RETURNING subscription_no;
