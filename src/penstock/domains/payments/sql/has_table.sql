-- Look whether a table is there, in a process that does not run its domain.
SELECT to_regclass($1) IS NOT NULL;
