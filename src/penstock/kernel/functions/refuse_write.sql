-- Refuse to write to a view that carries the name of a table of a system that Penstock replaces,
-- and say what to use instead: the trigger's argument.
CREATE OR REPLACE FUNCTION penstock.refuse_write() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is a read-only view; instead of %, use %', TG_TABLE_NAME, TG_OP, TG_ARGV[0]
        USING ERRCODE = 'feature_not_supported';
END $$;
