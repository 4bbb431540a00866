-- All attempts that were made to deliver one event.
SELECT subscription_id, item_id, attempt, outcome, status_code, response_body, error, duration_ms,
    settled_at
FROM penstock.webhook_attempts($1);
