-- A claim by DELETE would take instructions out of their order, and without a lease. PostgreSQL refuses
-- it at the joined sequence, whose name says what dispatches; without this trigger it would say only
-- that the view is not simple.
CREATE OR REPLACE TRIGGER payment_outbox_pending_is_not_claimed
INSTEAD OF UPDATE OR DELETE ON penstock.payment_outbox_pending
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('penstock outbox; penstock worker dispatches');
