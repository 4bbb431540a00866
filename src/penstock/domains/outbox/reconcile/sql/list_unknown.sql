-- The next instructions that may have been paid and match, in the order of their items; $5 NULL: all
-- of them.
SELECT id, attempt
FROM penstock.outbox_unknown
WHERE ($1::text IS NULL OR rail_type = $1)
    AND ($2::text IS NULL OR participant_id = $2)
    AND ($3::timestamptz IS NULL OR held_at < $3)
    AND id > $4
ORDER BY id
LIMIT $5::bigint;
