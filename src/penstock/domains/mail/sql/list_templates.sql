-- The latest version of each template and language, of one name or of all.
SELECT DISTINCT ON (name, language) name, language, version, subject, text, html, created_at, created_by
FROM penstock.mail_template
WHERE $1::text IS NULL OR name = $1
ORDER BY name, language, version DESC;
