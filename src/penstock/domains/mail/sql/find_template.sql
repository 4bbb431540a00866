-- The latest version of a template, in the first of the languages that it exists in.
SELECT name, language, version, subject, text, html
FROM penstock.mail_template
WHERE name = $1 AND language = ANY (CAST($2 AS text[]))
ORDER BY array_position(CAST($2 AS text[]), language), version DESC
LIMIT 1;
