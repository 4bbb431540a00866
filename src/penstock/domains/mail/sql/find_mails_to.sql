-- The same for mails to one recipient, and with a tag if $6 is given. MATERIALIZED: otherwise the
-- limit may lead the planner to walk through all mails, the newest first, until it has found
-- enough.
WITH matching AS MATERIALIZED (
    SELECT id, accepted_at, tags FROM penstock.mail WHERE addresses @> ARRAY[$5::text]
)
SELECT id
FROM matching
WHERE id < $1
    AND ($2::timestamptz IS NULL OR accepted_at >= $2)
    AND ($3::timestamptz IS NULL OR accepted_at < $3)
    AND ($6::text IS NULL OR tags @> ARRAY[$6::text])
ORDER BY id DESC
LIMIT $4;
