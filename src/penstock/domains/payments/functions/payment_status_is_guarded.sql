-- The condition is checked without a call, and AFTER takes no lock of its own: a move that is allowed
-- costs a microsecond.
CREATE OR REPLACE TRIGGER payment_status_is_guarded
AFTER UPDATE OF status ON penstock.payment
FOR EACH ROW
WHEN (OLD.status <> NEW.status AND OLD.status <> ALL (penstock.payment_statuses_before(NEW.status)))
EXECUTE FUNCTION penstock.refuse_payment_move();
