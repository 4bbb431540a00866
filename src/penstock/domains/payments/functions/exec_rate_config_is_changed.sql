-- The view joins tables and is therefore not updatable by itself.
CREATE OR REPLACE TRIGGER exec_rate_config_is_changed
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.exec_rate_config
FOR EACH ROW EXECUTE FUNCTION penstock.change_exec_rate_config();
