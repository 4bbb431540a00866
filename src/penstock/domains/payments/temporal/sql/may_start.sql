-- Ask whether workflows of a claimed batch may be started now: the lane is not paused, and the lease has not
-- expired.
SELECT lane.enabled AND EXISTS (
    SELECT FROM penstock.lease WHERE token = $2 AND expires_at > clock_timestamp()
)
FROM penstock.lane
WHERE name = $1;
