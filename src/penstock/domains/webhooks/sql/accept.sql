-- Accept events with all their deliveries; the function is the same for callers of any language.
SELECT outcome, event_id, accepted_at, deliveries
FROM penstock.accept_events(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz)
ORDER BY index;
