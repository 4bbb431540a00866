-- Store a key under the hash of its token. The same token again updates name and scopes; a revoked
-- key stays revoked.
INSERT INTO penstock.api_key (key_id, name, scopes, secret_hash, created_at)
VALUES ($1, $2, $3, $4, now())
ON CONFLICT (key_id) DO UPDATE
SET name = excluded.name, scopes = excluded.scopes
WHERE api_key.secret_hash = excluded.secret_hash
RETURNING key_id, name, scopes, created_at, revoked_at;
