-- Enqueue deliveries of events to a subscription, again or for the first time.
CREATE OR REPLACE FUNCTION penstock.redeliver(
    events bigint[], to_subscription integer, for_replay bigint, at timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    order_keys text[];
    item_ids bigint[];
BEGIN
    IF cardinality(events) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(
        penstock.webhook_order_key(s.subscription_id, s.ordering_path, event.data) ORDER BY g.place)
    INTO order_keys
    FROM unnest(events) WITH ORDINALITY AS g (event_no, place)
    CROSS JOIN LATERAL (
        SELECT data FROM penstock.webhook_event WHERE event_no = g.event_no LIMIT 1
    ) AS event
    JOIN penstock.webhook_subscription AS s ON s.subscription_no = to_subscription;
    item_ids := penstock.enqueue_deliveries(
        events, array_fill(to_subscription, ARRAY[cardinality(events)]), order_keys, NULL,
        redeliver.at);
    INSERT INTO penstock.webhook_redelivery (event_no, item_id, subscription_no, replay_no)
    SELECT d.event_no, d.item_id, to_subscription, for_replay
    FROM unnest(events, item_ids) AS d (event_no, item_id);
END $$;
