-- A lane is created by the app that has its handler, with the default policy, and is never deleted.
CREATE OR REPLACE TRIGGER exec_rate_config_is_read_only
INSTEAD OF INSERT OR DELETE ON penstock.exec_rate_config
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('an app with a handler for the lane');
