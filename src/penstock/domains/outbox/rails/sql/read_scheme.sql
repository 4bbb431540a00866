-- How destinations of a rail are checked.
SELECT destination_scheme FROM penstock.outbox_rail WHERE rail_type = $1;
