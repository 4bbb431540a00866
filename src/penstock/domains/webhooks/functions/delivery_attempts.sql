-- Attempts to deliver events, under the table name of the dispatcher that the webhooks replace.
-- The joined sequence refuses FOR UPDATE, see migration 0002.
CREATE OR REPLACE VIEW penstock.delivery_attempts AS
SELECT attempt.item_id || '-' || attempt.attempt AS id, event.event_id,
    attempt.attempt AS attempt_number, attempt.status_code, attempt.response_body, attempt.error,
    attempt.duration_ms, attempt.settled_at AS created_at, attempt.subscription_id, event.tenant
FROM penstock.webhook_event AS event
CROSS JOIN LATERAL penstock.webhook_attempts(event.event_no) AS attempt
CROSS JOIN penstock.run_penstock_worker;
