-- Remove a rail and return its type.
DELETE FROM penstock.outbox_rail WHERE rail_type = $1 RETURNING rail_type;
