-- A key that is gone would let an instruction be paid again.
CREATE OR REPLACE TRIGGER outbox_idempotency_is_not_truncated
BEFORE TRUNCATE ON penstock.outbox_idempotency
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
