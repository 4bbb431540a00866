-- Store a key under the hash of its token. The same token again updates name and scopes; a revoked
-- key stays revoked, and the key that made it stays the same.
INSERT INTO penstock.api_key (key_id, name, scopes, secret_hash, created_at, created_by)
VALUES ($1, $2, $3, $4, now(), $5)
ON CONFLICT (key_id) DO UPDATE
SET name = excluded.name, scopes = excluded.scopes
WHERE api_key.secret_hash = excluded.secret_hash
RETURNING key_id, name, scopes, created_at, created_by, revoked_at;
