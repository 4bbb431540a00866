-- Count what a replay is about.
UPDATE penstock.webhook_replay AS job
SET counted = (
    SELECT count(*) FILTER (WHERE is_wanted)
    FROM penstock.replay_candidates(job, job.next_event_no, 2147483647, 9223372036854775807))
WHERE replay_no = $1;
