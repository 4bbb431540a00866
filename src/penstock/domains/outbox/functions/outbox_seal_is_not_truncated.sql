-- Without its seals the archive proves nothing.
CREATE OR REPLACE TRIGGER outbox_seal_is_not_truncated
BEFORE TRUNCATE ON penstock.outbox_seal
FOR EACH STATEMENT EXECUTE FUNCTION penstock.refuse_change();
