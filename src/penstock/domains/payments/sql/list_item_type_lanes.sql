-- The lanes of item types that no other domain owns, without $2; $1 is the name of this domain.
SELECT t.lane
FROM penstock.payment_item_type AS t
JOIN penstock.lane AS l ON l.name = t.lane
WHERE t.lane <> $2 AND (l.owner IS NULL OR l.owner = $1)
ORDER BY t.lane;
