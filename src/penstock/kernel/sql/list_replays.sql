-- Replay jobs, the newest first, or the one with the given id.
SELECT replay.*, lane.name AS lane
FROM penstock.replay JOIN penstock.lane USING (lane_id)
WHERE $1::bigint IS NULL OR replay_id = $1
ORDER BY replay_id DESC
LIMIT 100;
