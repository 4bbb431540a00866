-- End a subscription whose endpoint is gone; one that is no longer active is left as it is.
UPDATE penstock.webhook_subscription
SET state = 'disabled', state_reason = $2, updated_at = now(), version = version + 1
WHERE subscription_no = $1 AND state = 'active'
RETURNING subscription_id;
