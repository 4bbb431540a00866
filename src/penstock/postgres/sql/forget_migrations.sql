-- Remove a package's applied steps from the migration table; one step that replaces them all
-- follows.
DELETE FROM penstock.migration
WHERE owner = $1;
