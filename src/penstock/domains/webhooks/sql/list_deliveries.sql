-- A page of the deliveries of one event, the oldest subscription first.
SELECT subscription_no AS number, subscription_id, item_id, status, attempts, next_attempt_at, last_error,
    delivered_at
FROM penstock.webhook_deliveries($1, $2, $3);
