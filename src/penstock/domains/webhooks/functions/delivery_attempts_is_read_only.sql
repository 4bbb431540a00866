-- Attempts are recorded by the workers that make them.
CREATE OR REPLACE TRIGGER delivery_attempts_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.delivery_attempts
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('penstock worker, which records attempts');
