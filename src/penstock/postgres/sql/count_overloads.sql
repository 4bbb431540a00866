-- How many functions have this name: with changed parameter types CREATE OR REPLACE adds another.
SELECT count(*)
FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
WHERE nspname = $1 AND proname = $2;
