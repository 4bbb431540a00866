-- What is executed must not change after it was checked and scheduled.
CREATE OR REPLACE TRIGGER payment_exec_context_is_append_only
BEFORE UPDATE OR DELETE ON penstock.payment_exec_context
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_change();
