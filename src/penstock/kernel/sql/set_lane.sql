-- Change a lane's policy; the function also serves the view exec_rate_config.
SELECT *
FROM penstock.set_lane($1, $2::jsonb, $3::interval);
