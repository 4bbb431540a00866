-- The secrets that sign now, the newest first.
SELECT sealed FROM penstock.webhook_secret
WHERE subscription_no = $1 AND retires_at > now()
ORDER BY secret_no DESC
LIMIT 2;
