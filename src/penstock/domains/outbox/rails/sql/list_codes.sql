-- Codes of one set, or of all if $1 is null.
SELECT code_set, code, class AS code_class, meaning, source, updated_at
FROM penstock.outbox_code
WHERE code_set = coalesce($1::text, code_set)
ORDER BY code_set, code;
