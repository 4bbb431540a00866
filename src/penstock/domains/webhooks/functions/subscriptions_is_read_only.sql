-- A change of a subscription also changes its patterns and its version.
CREATE OR REPLACE TRIGGER subscriptions_is_read_only
INSTEAD OF INSERT OR UPDATE OR DELETE ON penstock.subscriptions
FOR EACH ROW EXECUTE FUNCTION penstock.refuse_write('PATCH /subscriptions or penstock subscription');
