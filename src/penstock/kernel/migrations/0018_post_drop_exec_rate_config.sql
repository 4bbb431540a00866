-- The view exec_rate_config is that of payments now, which replaces the one of the kernel. Where payments
-- are not installed, the old one goes; it is known by a column that it lacks.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = to_regclass('penstock.exec_rate_config') AND attname = 'exec_workflow_type')
    THEN
        DROP VIEW IF EXISTS penstock.exec_rate_config;
        DROP FUNCTION IF EXISTS penstock.change_exec_rate_config();
    END IF;
END $$;
