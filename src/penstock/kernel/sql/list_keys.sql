-- All keys without their hashes.
SELECT key_id, name, scopes, created_at, revoked_at FROM penstock.api_key ORDER BY created_at;
