-- One event with its data and how far it is.
SELECT event.event_no AS number, event.event_id AS id, event.tenant, event.type, event.source,
    event.data, event.accepted_at, progress.status, progress.attempts,
    (SELECT max_attempts FROM penstock.lane WHERE name = 'penstock.webhooks') AS max_attempts,
    progress.next_attempt_at, progress.last_error,
    coalesce(progress.changed_at, event.accepted_at) AS updated_at, progress.delivered_at
FROM penstock.webhook_event_id AS known
CROSS JOIN LATERAL (
    SELECT * FROM penstock.webhook_event WHERE event_no = known.event_no LIMIT 1
) AS event
CROSS JOIN LATERAL penstock.webhook_progress(event.event_no) AS progress
WHERE known.tenant = $1 AND known.event_id = $2;
