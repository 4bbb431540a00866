-- Set or replace the opening hours of a rail.
INSERT INTO penstock.outbox_calendar (rail_type, calendar) VALUES ($1, $2)
ON CONFLICT (rail_type) DO UPDATE SET calendar = excluded.calendar;
