-- Keep a key by the hash of its token; the same token again gets the new name and scopes, but a
-- revoked one stays revoked.
INSERT INTO penstock.api_key (key_id, name, scopes, secret_hash, created_at)
VALUES ($1, $2, $3, $4, now())
ON CONFLICT (key_id) DO UPDATE
SET name = excluded.name, scopes = excluded.scopes
WHERE api_key.secret_hash = excluded.secret_hash
RETURNING key_id, name, scopes, created_at, revoked_at;
