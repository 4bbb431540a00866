-- Mails of the lane $1 that died after ($2, $3), at most $4, in the order in which they died, and
-- whether a recipient has no result.
SELECT dead.id, dead.died_at, (
        SELECT count(*) FROM penstock.mail_result WHERE mail_id = dead.id
    ) < (
        SELECT cardinality(addresses) FROM penstock.mail WHERE mail.id = dead.id
    ) AS is_open
FROM penstock.dead
WHERE dead.lane_id = (SELECT lane_id FROM penstock.lane WHERE name = $1)
    AND (dead.died_at, dead.id) > ($2, $3)
ORDER BY dead.died_at, dead.id
LIMIT $4;
