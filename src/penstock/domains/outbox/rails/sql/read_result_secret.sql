-- The sealed secret of results of one rail.
SELECT sealed_result_secret FROM penstock.outbox_rail WHERE rail_type = $1;
