-- A page of events, the newest first. Event numbers grow with the time of acceptance.
SELECT event.event_no AS number, event.event_id AS id, event.tenant, event.type, event.source,
    NULL AS data, event.accepted_at, progress.status, progress.attempts,
    (SELECT max_attempts FROM penstock.lane WHERE name = 'penstock.webhooks') AS max_attempts,
    progress.next_attempt_at, progress.last_error,
    coalesce(progress.changed_at, event.accepted_at) AS updated_at, progress.delivered_at
FROM (
    SELECT event_no, event_id, tenant, type, source, accepted_at
    FROM penstock.webhook_event
    WHERE tenant = $1
        AND ($2::text[] IS NULL OR type = ANY ($2))
        AND ($3::timestamptz IS NULL OR accepted_at >= $3)
        AND ($4::timestamptz IS NULL OR accepted_at < $4)
        AND event_no < coalesce($5::bigint, 9223372036854775807)
    ORDER BY event_no DESC
    LIMIT $6
) AS event
CROSS JOIN LATERAL penstock.webhook_progress(event.event_no) AS progress
ORDER BY event.event_no DESC;
