-- The archive is evidence. Partitions do not inherit this trigger: each has its own.
CREATE OR REPLACE TRIGGER outbox_attempt_is_not_truncated
BEFORE TRUNCATE ON penstock.outbox_attempt
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
