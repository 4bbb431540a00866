-- A page of the audit, the newest first.
SELECT audit_id, audited_at, who, action, subject, before, after
FROM penstock.audit
WHERE ($1::text IS NULL OR subject = $1) AND ($2::bigint IS NULL OR audit_id < $2)
ORDER BY audit_id DESC
LIMIT $3;
