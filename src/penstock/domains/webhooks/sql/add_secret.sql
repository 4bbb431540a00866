-- Add a secret; the ones before retire when the overlap is over, unless they do so sooner.
WITH retired AS (
    UPDATE penstock.webhook_secret SET retires_at = least(retires_at, now() + $3::interval)
    WHERE subscription_no = $1
)
INSERT INTO penstock.webhook_secret (subscription_no, sealed, created_at) VALUES ($1, $2, now());
