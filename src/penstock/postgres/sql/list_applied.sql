-- What was applied for one owner, to compare with what this release ships.
SELECT number, name, checksum
FROM penstock.migration
WHERE owner = $1
ORDER BY number;
