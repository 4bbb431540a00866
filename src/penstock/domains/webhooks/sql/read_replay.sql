-- One replay.
SELECT replay_no AS id, subscription_id, which, job.event_types, from_at, until_at, rate, job.state,
    counted, replayed, job.created_at, created_by, finished_at
FROM penstock.webhook_replay AS job
JOIN penstock.webhook_subscription USING (subscription_no)
WHERE replay_no = $1;
