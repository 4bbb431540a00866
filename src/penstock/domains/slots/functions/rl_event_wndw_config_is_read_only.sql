-- A rule has versions, and a new one moves the cells of its pool.
CREATE OR REPLACE TRIGGER rl_event_wndw_config_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.rl_event_wndw_config
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('POST /admin/rate-limit/config');
