-- A payment whose context is gone cannot be executed.
CREATE OR REPLACE TRIGGER payment_exec_context_is_not_truncated
BEFORE TRUNCATE ON penstock.payment_exec_context
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
