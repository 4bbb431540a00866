-- A slot belongs to a cell, which only the functions take and free.
CREATE OR REPLACE TRIGGER rl_event_slot_dtl_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.rl_event_slot_dtl
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('penstock.assign_slots or penstock.cancel_slot');
