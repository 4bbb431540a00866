-- The opening hours of all rails that have some.
SELECT rail_type, calendar FROM penstock.outbox_calendar ORDER BY rail_type;
