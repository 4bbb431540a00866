-- The events that are to be sent now, and which version of their subscriptions counts. One row per
-- place, also where an event is gone.
SELECT event.event_id, event.type, event.source, event.accepted_at, event.data, s.version
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS d (event_no, subscription_no, place)
LEFT JOIN LATERAL (
    SELECT event_id, type, source, accepted_at, data FROM penstock.webhook_event
    WHERE event_no = d.event_no
    LIMIT 1
) AS event ON true
LEFT JOIN penstock.webhook_subscription AS s USING (subscription_no)
ORDER BY place;
