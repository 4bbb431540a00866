-- The statements that drop a function with all its overloads, a view, or a trigger of a relation.
-- $1 is the schema, or the qualified name of the trigger's relation.
SELECT format('DROP FUNCTION %s', pg_proc.oid::regprocedure)
FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
WHERE nspname = $1::text AND proname = $2::text
UNION ALL
SELECT format('DROP VIEW %s', pg_class.oid::regclass)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1::text AND relname = $2::text AND relkind = 'v'
UNION ALL
SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass)
FROM pg_trigger
WHERE tgrelid = to_regclass($1::text) AND tgname = $2::text;
