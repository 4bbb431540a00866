-- An INSERT would save no context, and an UPDATE would claim nothing.
CREATE OR REPLACE TRIGGER payment_exec_queue_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.payment_exec_queue
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write(
    'penstock.save_context_and_enqueue, penstock payment, or a worker');
