-- All keys without their hashes.
SELECT key_id, name, scopes, created_at, created_by, revoked_at
FROM penstock.api_key
ORDER BY created_at;
