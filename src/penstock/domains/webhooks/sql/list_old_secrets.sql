-- Secrets that are still needed and do not begin with this mark.
SELECT secret_no AS number, subscription_id, sealed
FROM penstock.webhook_secret
JOIN penstock.webhook_subscription USING (subscription_no)
WHERE state <> 'deleted' AND retires_at > now()
    AND substring(sealed FROM 1 FOR octet_length($1::bytea)) <> $1 AND secret_no > $2
ORDER BY secret_no
LIMIT $3;
