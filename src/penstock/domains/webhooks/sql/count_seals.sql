-- With which keys what is still needed was sealed, by the mark of $1 bytes that each seal begins
-- with.
SELECT mark, count(*) FILTER (WHERE NOT is_header) AS secrets, count(*) FILTER (WHERE is_header) AS headers
FROM (
    SELECT substring(secret.sealed FROM 1 FOR $1::integer) AS mark, false AS is_header
    FROM penstock.webhook_secret AS secret
    JOIN penstock.webhook_subscription USING (subscription_no)
    WHERE state <> 'deleted' AND retires_at > now()
    UNION ALL
    SELECT substring(sealed_headers FROM 1 FOR $1::integer), true
    FROM penstock.webhook_subscription
    WHERE state <> 'deleted' AND sealed_headers IS NOT NULL
) AS seal
GROUP BY mark
ORDER BY mark;
