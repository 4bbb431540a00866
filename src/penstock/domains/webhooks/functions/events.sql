-- Events with the status of all their deliveries, under the table name of the dispatcher that the
-- webhooks replace. The status of each row is computed when it is read.
-- The joined sequence refuses FOR UPDATE, see migration 0002.
CREATE OR REPLACE VIEW penstock.events AS
SELECT event.event_id AS id, event.type, event.source, event.data::jsonb AS data, progress.status,
    progress.attempts,
    (SELECT max_attempts FROM penstock.lane WHERE name = 'penstock.webhooks') AS max_attempts,
    progress.next_attempt_at, progress.last_error,
    event.accepted_at AS created_at,
    coalesce(progress.changed_at, event.accepted_at) AS updated_at, progress.delivered_at,
    event.tenant
FROM penstock.webhook_event AS event
CROSS JOIN LATERAL penstock.webhook_progress(event.event_no) AS progress
CROSS JOIN penstock.run_penstock_worker;
