-- One key with its hash, for the comparison.
SELECT key_id, name, scopes, created_at, created_by, revoked_at, secret_hash
FROM penstock.api_key
WHERE key_id = $1;
