-- Subscriptions that are not deleted, under the table name of the dispatcher that the webhooks
-- replace. Secrets are not shown.
-- The joined sequence refuses FOR UPDATE, see migration 0002.
CREATE OR REPLACE VIEW penstock.subscriptions AS
SELECT subscription_id AS id, url, event_types, rate_limit, created_at, state = 'active' AS active,
    tenant
FROM penstock.webhook_subscription CROSS JOIN penstock.run_penstock_worker
WHERE state <> 'deleted';
