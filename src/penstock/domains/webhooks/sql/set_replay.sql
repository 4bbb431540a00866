-- Pause a replay, let it go on or end it; one that is over stays so.
UPDATE penstock.webhook_replay
SET state = $2, finished_at = CASE WHEN $2 = 'cancelled' THEN now() END
WHERE replay_no = $1 AND state IN ('running', 'paused')
RETURNING replay_no;
