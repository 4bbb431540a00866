-- Written in the transaction that applies the text, so that the migration table cannot disagree
-- with it.
INSERT INTO penstock.function_version (owner, name, version, checksum, applied_at)
VALUES ($1, $2, $3, $4, now())
ON CONFLICT (owner, name) DO UPDATE
SET version = excluded.version, checksum = excluded.checksum, applied_at = excluded.applied_at;
