-- Partitions do not inherit this trigger: penstock.open_day gives each new one its own.
CREATE OR REPLACE TRIGGER dispatch_audit_log_is_not_truncated
BEFORE TRUNCATE ON penstock.dispatch_audit_log
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
