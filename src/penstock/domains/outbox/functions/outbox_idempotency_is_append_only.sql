-- A key that is gone would let an instruction be paid again.
CREATE OR REPLACE TRIGGER outbox_idempotency_is_append_only
BEFORE UPDATE OR DELETE ON penstock.outbox_idempotency
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_change();
