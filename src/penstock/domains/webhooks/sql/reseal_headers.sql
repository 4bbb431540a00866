-- Put new seals in the place of old ones, unless somebody has changed them meanwhile. What is
-- sealed stays the same, and so does the version.
UPDATE penstock.webhook_subscription AS subscription
SET sealed_headers = new.sealed
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS new (subscription_no, before, sealed)
WHERE subscription.subscription_no = new.subscription_no
    AND subscription.sealed_headers = new.before
RETURNING subscription.subscription_no;
