-- The archive is evidence. Partitions inherit this trigger.
CREATE OR REPLACE TRIGGER outbox_attempt_is_append_only
BEFORE UPDATE OR DELETE ON penstock.outbox_attempt
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_change();
