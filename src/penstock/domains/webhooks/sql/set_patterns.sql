-- Replace the patterns by which a subscription is found.
WITH gone AS (
    DELETE FROM penstock.webhook_pattern WHERE subscription_no = $1 AND pattern <> ALL ($2::text[])
)
INSERT INTO penstock.webhook_pattern (tenant, pattern, subscription_no)
SELECT tenant, pattern, $1
FROM penstock.webhook_subscription, unnest($2::text[]) AS pattern
WHERE subscription_no = $1
ON CONFLICT DO NOTHING;
