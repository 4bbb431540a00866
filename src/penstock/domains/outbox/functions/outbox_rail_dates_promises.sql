-- Each change of a rail, also one by hand, says from when on its promises count.
CREATE OR REPLACE TRIGGER outbox_rail_dates_promises
BEFORE INSERT OR UPDATE ON penstock.outbox_rail
FOR EACH ROW EXECUTE FUNCTION penstock.date_rail_promises();
