-- How many instructions that may have been paid match.
SELECT count(*)
FROM penstock.outbox_unknown
WHERE ($1::text IS NULL OR rail_type = $1)
    AND ($2::text IS NULL OR participant_id = $2)
    AND ($3::timestamptz IS NULL OR held_at < $3);
