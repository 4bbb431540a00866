-- The migrations applied for one package, to compare with those of this release.
SELECT number, name, checksum
FROM penstock.migration
WHERE owner = $1
ORDER BY number;
