-- All policies; there are tens of lanes, not thousands.
SELECT lane.* FROM penstock.lane ORDER BY name;
