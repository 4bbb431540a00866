-- Headers that are still needed and do not begin with this mark.
SELECT subscription_no AS number, subscription_id, sealed_headers AS sealed
FROM penstock.webhook_subscription
WHERE state <> 'deleted' AND substring(sealed_headers FROM 1 FOR octet_length($1::bytea)) <> $1 AND subscription_no > $2
ORDER BY subscription_no
LIMIT $3;
