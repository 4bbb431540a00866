-- Put new seals in the place of old ones, unless somebody has changed them meanwhile.
UPDATE penstock.webhook_secret AS secret
SET sealed = new.sealed
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS new (secret_no, before, sealed)
WHERE secret.secret_no = new.secret_no AND secret.sealed = new.before
RETURNING secret.secret_no;
