-- Accept one event, in the caller's transaction; for producers in SQL.
CREATE OR REPLACE FUNCTION penstock.accept_event(
    type text, data jsonb, event_id text DEFAULT NULL, source text DEFAULT NULL,
    tenant text DEFAULT 'default', idempotency_key text DEFAULT NULL
) RETURNS TABLE (outcome text, event_id text, accepted_at timestamptz, deliveries integer)
LANGUAGE sql AS $$
    SELECT outcome, event_id, accepted_at, deliveries
    FROM penstock.accept_events(
        ARRAY[accept_event.tenant], ARRAY[accept_event.event_id], ARRAY[accept_event.type],
        ARRAY[accept_event.source], ARRAY[accept_event.data::text], ARRAY[accept_event.idempotency_key])
$$;
