-- Change a lane's policy; the function is the same that SQL callers use.
SELECT *
FROM penstock.set_lane($1, $2::jsonb, $3::interval, $4, $5);
