-- An audit log that can be edited proves nothing. Partitions inherit this trigger; retention drops them.
CREATE OR REPLACE TRIGGER dispatch_audit_log_is_append_only
BEFORE UPDATE OR DELETE ON penstock.dispatch_audit_log
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_change();
