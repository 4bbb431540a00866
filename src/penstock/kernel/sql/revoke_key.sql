-- Revoke a key; the instant of the first revocation stays.
UPDATE penstock.api_key SET revoked_at = coalesce(revoked_at, now())
WHERE key_id = $1
RETURNING key_id;
