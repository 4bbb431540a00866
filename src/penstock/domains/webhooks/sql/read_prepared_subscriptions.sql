-- What it takes to send to subscriptions: with the secrets that sign now, the newest first, and
-- when the next of them retires.
SELECT s.subscription_no, s.version, s.subscription_id, s.state, s.url, s.profile, s.rate_limit,
    s.concurrency, s.timeout, s.retry_schedule, s.sealed_headers, live.secrets, live.stale_at
FROM penstock.webhook_subscription AS s
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(sealed ORDER BY secret_no DESC), '{}') AS secrets,
        min(retires_at) FILTER (WHERE isfinite(retires_at)) AS stale_at
    FROM (
        SELECT sealed, secret_no, retires_at FROM penstock.webhook_secret
        WHERE subscription_no = s.subscription_no AND retires_at > now()
        ORDER BY secret_no DESC
        LIMIT 2
    ) AS newest
) AS live
WHERE s.subscription_no = ANY ($1::integer[]);
