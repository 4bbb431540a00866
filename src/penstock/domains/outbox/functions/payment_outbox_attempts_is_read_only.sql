-- Attempts are archived when they are settled, and never changed.
CREATE OR REPLACE TRIGGER payment_outbox_attempts_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.payment_outbox_attempts
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('penstock outbox; the archive is append-only');
