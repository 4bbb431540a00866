-- Which versions of a package's functions, views and triggers the database has.
SELECT name, version, checksum
FROM penstock.function_version
WHERE owner = $1;
