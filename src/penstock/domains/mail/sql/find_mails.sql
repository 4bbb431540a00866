-- The newest mails before $1 that were accepted between $2 and $3.
SELECT id
FROM penstock.mail
WHERE id < $1
    AND ($2::timestamptz IS NULL OR accepted_at >= $2)
    AND ($3::timestamptz IS NULL OR accepted_at < $3)
ORDER BY id DESC
LIMIT $4;
