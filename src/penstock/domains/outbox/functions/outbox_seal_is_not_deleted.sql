-- Without its seals the archive proves nothing. Retention empties lists of a seal, and keeps its hash.
CREATE OR REPLACE TRIGGER outbox_seal_is_not_deleted
BEFORE DELETE ON penstock.outbox_seal
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_change();
