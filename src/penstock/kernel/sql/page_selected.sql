-- The next items that a decision about many meets, in the order of their ids.
SELECT id
FROM penstock.select_items($1, $2, $3, $4, $5, $6) AS id
WHERE id > $7
ORDER BY id
LIMIT $8;
