-- Lookups are taken rail by rail: a rail that settles in days has as many as it has open payments, and
-- those of other rails must not be searched among them.
CREATE INDEX outbox_lookup_due_of_rail ON penstock.outbox_lookup (rail_type, due_at);
DROP INDEX penstock.outbox_lookup_due;
