-- The same for the default partition.
CREATE OR REPLACE TRIGGER dispatch_audit_log_kept_is_not_truncated
BEFORE TRUNCATE ON penstock.dispatch_audit_log_kept
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
