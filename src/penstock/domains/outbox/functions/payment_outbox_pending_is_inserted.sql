-- Producers of the outbox that this replaces insert here.
CREATE OR REPLACE TRIGGER payment_outbox_pending_is_inserted
INSTEAD OF INSERT ON penstock.payment_outbox_pending
FOR EACH ROW EXECUTE FUNCTION penstock.insert_payment_outbox_pending();
