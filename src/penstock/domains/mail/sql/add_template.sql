-- Add the next version of a template in one language, under the lock of both.
INSERT INTO penstock.mail_template (
    name, language, version, subject, text, html, created_at, created_by)
SELECT $1, $2, 1 + coalesce(max(version), 0), $3, $4, $5, now(), $6
FROM penstock.mail_template
WHERE name = $1 AND language = $2
RETURNING version;
