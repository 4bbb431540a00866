-- A page of suppressed addresses.
SELECT address, reason, expires_at, mail_id, created_at, created_by
FROM penstock.mail_suppression
WHERE address > $1
ORDER BY address
LIMIT $2;
