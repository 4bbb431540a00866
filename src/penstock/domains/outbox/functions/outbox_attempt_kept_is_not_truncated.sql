-- The same for the default partition.
CREATE OR REPLACE TRIGGER outbox_attempt_kept_is_not_truncated
BEFORE TRUNCATE ON penstock.outbox_attempt_kept
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
