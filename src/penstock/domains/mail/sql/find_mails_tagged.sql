-- The same for mails with a tag.
WITH matching AS MATERIALIZED (
    SELECT id, accepted_at FROM penstock.mail WHERE tags @> ARRAY[$5::text]
)
SELECT id
FROM matching
WHERE id < $1
    AND ($2::timestamptz IS NULL OR accepted_at >= $2)
    AND ($3::timestamptz IS NULL OR accepted_at < $3)
ORDER BY id DESC
LIMIT $4;
