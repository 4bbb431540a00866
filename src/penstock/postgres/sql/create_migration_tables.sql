-- The schema, and the tables of what was applied, which no migration can create for itself. The one
-- file of several statements: it runs unprepared, before anything else exists.
CREATE SCHEMA IF NOT EXISTS penstock;
CREATE TABLE IF NOT EXISTS penstock.migration (
    owner text NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT migration_is_applied_once PRIMARY KEY (owner, number),
    CONSTRAINT migration_number_is_positive CHECK (number > 0)
);
CREATE TABLE IF NOT EXISTS penstock.function_version (
    owner text NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL,
    CONSTRAINT function_has_one_version PRIMARY KEY (owner, name),
    CONSTRAINT function_version_is_positive CHECK (version > 0)
);
