-- Runs follow from the slots.
CREATE OR REPLACE TRIGGER rl_wndw_frontier_trk_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.rl_wndw_frontier_trk
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('penstock.assign_slots');
