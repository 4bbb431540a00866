-- The deliveries of one event.
SELECT subscription_id, item_id, status, attempts, next_attempt_at, last_error, delivered_at
FROM penstock.webhook_deliveries($1);
