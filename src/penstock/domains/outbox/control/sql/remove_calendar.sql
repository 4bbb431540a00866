-- Without a row a rail is always open.
DELETE FROM penstock.outbox_calendar WHERE rail_type = $1 RETURNING rail_type;
