-- Rows of the audit log are only inserted. The days that are open already get what later ones get from
-- open_day: a trigger that refuses TRUNCATE, which no partition inherits.
DO $$
DECLARE
    part text;
BEGIN
    FOR part IN
        SELECT relname
        FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'penstock.dispatch_audit_log'::regclass
            AND relname ~ '^dispatch_audit_log_\d{8}$'
    LOOP
        EXECUTE format(
            'CREATE TRIGGER dispatch_audit_log_is_not_truncated BEFORE TRUNCATE ON penstock.%I '
            'FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change()', part);
    END LOOP;
END $$;
