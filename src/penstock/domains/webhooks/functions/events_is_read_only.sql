-- Workers claim deliveries as items; events are accepted with their deliveries.
CREATE OR REPLACE TRIGGER events_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.events
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('penstock.accept_events; penstock worker delivers');
