-- Whether any item of the lane is ready, parked, leased or held.
SELECT EXISTS (SELECT FROM penstock.ready WHERE lane_id = $1)
    OR EXISTS (SELECT FROM penstock.parked WHERE lane_id = $1)
    OR EXISTS (SELECT FROM penstock.lease WHERE lane_id = $1)
    OR EXISTS (SELECT FROM penstock.held WHERE lane_id = $1);
