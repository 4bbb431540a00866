-- Enqueue deliveries, those with an order key in the ordered lane, and return their item ids.
CREATE OR REPLACE FUNCTION penstock.enqueue_deliveries(
    events bigint[], subscriptions integer[], order_keys text[], due_ats timestamptz[],
    at timestamptz
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
BEGIN
    IF enqueue_deliveries.events IS NULL THEN
        RETURN NULL;
    END IF;
    IF cardinality(array_remove(enqueue_deliveries.order_keys, NULL)) = 0 THEN
        RETURN ARRAY(
            SELECT item_id
            FROM penstock.enqueue_many(
                'penstock.webhooks', penstock.delivery_payloads(
                    enqueue_deliveries.events, enqueue_deliveries.subscriptions),
                NULL, enqueue_deliveries.due_ats, NULL, NULL, enqueue_deliveries.at, 'webhooks')
            ORDER BY index);
    END IF;
    WITH delivery AS MATERIALIZED (
        SELECT *
        FROM unnest(
            enqueue_deliveries.events, enqueue_deliveries.subscriptions,
            enqueue_deliveries.order_keys, enqueue_deliveries.due_ats) WITH ORDINALITY
            AS d (event_no, subscription_no, order_key, due_at, place)
    ), ordered AS (
        SELECT places[index] AS place, item_id
        FROM (
            SELECT array_agg(place ORDER BY place) AS places,
                array_agg(event_no ORDER BY place) AS events,
                array_agg(subscription_no ORDER BY place) AS subscriptions,
                array_agg(order_key ORDER BY place) AS order_keys,
                array_agg(due_at ORDER BY place) AS due_ats
            FROM delivery WHERE order_key IS NOT NULL
        ) AS d
        CROSS JOIN LATERAL penstock.enqueue_many(
            'penstock.webhooks.ordered', penstock.delivery_payloads(events, subscriptions), NULL,
            due_ats, order_keys, NULL, enqueue_deliveries.at, 'webhooks')
    ), plain AS (
        SELECT places[index] AS place, item_id
        FROM (
            SELECT array_agg(place ORDER BY place) AS places,
                array_agg(event_no ORDER BY place) AS events,
                array_agg(subscription_no ORDER BY place) AS subscriptions,
                array_agg(due_at ORDER BY place) AS due_ats
            FROM delivery WHERE order_key IS NULL
        ) AS d
        CROSS JOIN LATERAL penstock.enqueue_many(
            'penstock.webhooks', penstock.delivery_payloads(events, subscriptions), NULL, due_ats,
            NULL, NULL, enqueue_deliveries.at, 'webhooks')
        WHERE events IS NOT NULL
    )
    SELECT array_agg(item_id ORDER BY place) INTO ids
    FROM (SELECT * FROM ordered UNION ALL SELECT * FROM plain) AS enqueued;
    RETURN ids;
END $$;
