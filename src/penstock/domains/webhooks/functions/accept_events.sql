-- Accept events with all their deliveries, in the caller's transaction. The arrays are parallel;
-- an event without an id is given one. Returns one row per event, in any order. Outcomes: accepted;
-- existing (the same event was accepted before); conflict (its id, or its idempotency key, belongs
-- to another event; nothing was done).
CREATE OR REPLACE FUNCTION penstock.accept_events(
    tenants text[], event_ids text[], types text[], sources text[], datas text[],
    idempotency_keys text[], at timestamptz DEFAULT NULL
) RETURNS TABLE (
    index bigint, outcome text, event_id text, accepted_at timestamptz, deliveries integer
)
LANGUAGE plpgsql
-- A plan made while the tables were small would be kept, and scan them when they have grown.
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    now_at timestamptz := coalesce(accept_events.at, clock_timestamp());
    ids text[] := ARRAY(
        SELECT coalesce(id, 'evt_' || replace(gen_random_uuid()::text, '-', ''))
        FROM unnest(event_ids) WITH ORDINALITY AS g (id, index)
        ORDER BY index);
    are_clashing boolean[] := '{}';
    taken_tenants text[];
    taken_keys text[];
    fresh_indexes bigint[];
    fresh_nos bigint[];
    -- The deliveries to enqueue, in the order of their events.
    for_events bigint[];
    for_subscriptions integer[];
    order_keys text[];
    item_ids bigint[];
BEGIN
    IF cardinality(array_remove(idempotency_keys, NULL)) > 0 THEN
        -- Keys are inserted in sorted order, so that two callers with the same ones cannot
        -- deadlock.
        WITH taken AS (
            INSERT INTO penstock.webhook_idempotency (tenant, idempotency_key, event_id)
            SELECT tenant, key, id
            FROM unnest(tenants, idempotency_keys, ids) WITH ORDINALITY AS g (tenant, key, id, index)
            WHERE key IS NOT NULL
            ORDER BY tenant, key, index
            ON CONFLICT DO NOTHING
            RETURNING tenant, idempotency_key
        )
        SELECT array_agg(tenant), array_agg(idempotency_key) INTO taken_tenants, taken_keys FROM taken;
        SELECT array_agg(coalesce(known.event_id, g.id) ORDER BY g.index),
            array_agg(g.given_id <> known.event_id ORDER BY g.index)
        INTO ids, are_clashing
        FROM unnest(tenants, idempotency_keys, ids, event_ids) WITH ORDINALITY
            AS g (tenant, key, id, given_id, index)
        LEFT JOIN penstock.webhook_idempotency AS known
            ON known.tenant = g.tenant AND known.idempotency_key = g.key;
    END IF;

    WITH given AS MATERIALIZED (
        SELECT index, tenant, id, nextval('penstock.item_id') AS event_no,
            penstock.webhook_hash(type, source, data) AS event_hash
        FROM unnest(tenants, ids, types, sources, datas, are_clashing) WITH ORDINALITY
            AS g (tenant, id, type, source, data, is_clashing, index)
        WHERE is_clashing IS NOT TRUE
    ), fresh AS (
        INSERT INTO penstock.webhook_event_id (tenant, event_id, event_no, event_hash)
        SELECT tenant, id, event_no, event_hash
        FROM given
        ORDER BY tenant, id, index
        ON CONFLICT DO NOTHING
        RETURNING event_no
    )
    SELECT array_agg(index ORDER BY event_no), array_agg(event_no ORDER BY event_no)
    INTO fresh_indexes, fresh_nos
    FROM given JOIN fresh USING (event_no);

    WITH new_event AS MATERIALIZED (
        -- Joined, not subscripted: a subscript of an array of texts scans all elements before it.
        SELECT event_no, tenant, type, data
        FROM unnest(tenants, types, datas) WITH ORDINALITY AS g (tenant, type, data, index)
        JOIN unnest(fresh_indexes, fresh_nos) AS f (index, event_no) USING (index)
    ), interest AS MATERIALIZED (
        -- Events of one call are of a few types.
        SELECT DISTINCT kind.tenant, kind.type, s.subscription_no, s.subscription_id,
            s.filter_path::text, s.ordering_path
        -- A test event goes only to the subscription that it is sent to.
        FROM (SELECT DISTINCT tenant, type FROM new_event WHERE type <> 'penstock.test') AS kind
        CROSS JOIN LATERAL unnest(penstock.webhook_patterns(kind.type)) AS matching (pattern)
        -- Looked up one by one: with a join the planner may scan all patterns.
        CROSS JOIN LATERAL (
            SELECT subscription_no FROM penstock.webhook_pattern AS p
            WHERE p.tenant = kind.tenant AND p.pattern = matching.pattern
            OFFSET 0
        ) AS taker
        CROSS JOIN LATERAL (
            SELECT * FROM penstock.webhook_subscription
            WHERE subscription_no = taker.subscription_no
            LIMIT 1
        ) AS s
        WHERE s.state = 'active'
    ), delivery AS MATERIALIZED (
        SELECT event_no, subscription_no, penstock.webhook_order_key(
            subscription_id, ordering_path, data) AS order_key
        FROM new_event JOIN interest USING (tenant, type)
        WHERE filter_path IS NULL OR penstock.webhook_is_wanted(data, filter_path)
    )
    SELECT array_agg(event_no ORDER BY event_no, subscription_no),
        array_agg(subscription_no ORDER BY event_no, subscription_no),
        array_agg(order_key ORDER BY event_no, subscription_no)
    INTO for_events, for_subscriptions, order_keys
    FROM delivery;

    item_ids := penstock.enqueue_deliveries(
        for_events, for_subscriptions, order_keys, NULL, now_at);

    RETURN QUERY
    WITH carried AS (
        SELECT event_no, array_agg(subscription_no) AS subscription_nos, array_agg(item_id) AS item_ids
        FROM unnest(for_events, for_subscriptions, item_ids)
            AS d (event_no, subscription_no, item_id)
        GROUP BY event_no
    ), stored AS (
        INSERT INTO penstock.webhook_event (
            event_no, accepted_at, subscription_nos, item_ids, tenant, event_id, type, source, data)
        SELECT event_no, now_at, coalesce(carried.subscription_nos, '{}'),
            coalesce(carried.item_ids, '{}'), tenant, id, type, source, data
        FROM unnest(tenants, ids, types, sources, datas) WITH ORDINALITY
            AS g (tenant, id, type, source, data, index)
        JOIN unnest(fresh_indexes, fresh_nos) AS f (index, event_no) USING (index)
        LEFT JOIN carried USING (event_no)
        RETURNING event_no, event_id, cardinality(item_ids) AS deliveries
    )
    SELECT f.index, 'accepted', stored.event_id, now_at, stored.deliveries
    FROM stored JOIN unnest(fresh_indexes, fresh_nos) AS f (index, event_no) USING (event_no)
    ORDER BY f.index;
    IF cardinality(fresh_indexes) = cardinality(ids) THEN
        RETURN;
    END IF;

    -- With a conflict nothing was done: the caller may repair the event and use the same key.
    DELETE FROM penstock.webhook_idempotency AS spare
    USING unnest(taken_tenants, taken_keys) AS taken (tenant, key),
        unnest(tenants, idempotency_keys, ids, types, sources, datas)
            AS g (tenant, key, id, type, source, data),
        penstock.webhook_event_id AS known
    WHERE spare.tenant = taken.tenant AND spare.idempotency_key = taken.key
        AND g.tenant = taken.tenant AND g.key = taken.key AND g.id = spare.event_id
        AND known.tenant = g.tenant AND known.event_id = g.id
        AND known.event_hash <> penstock.webhook_hash(g.type, g.source, g.data);

    RETURN QUERY
    SELECT g.index,
        CASE
            WHEN g.is_clashing IS NOT TRUE
                AND known.event_hash = penstock.webhook_hash(g.type, g.source, g.data) THEN 'existing'
            ELSE 'conflict'
        END,
        g.id, event.accepted_at, cardinality(event.item_ids)
    FROM unnest(tenants, ids, types, sources, datas, are_clashing) WITH ORDINALITY
        AS g (tenant, id, type, source, data, is_clashing, index)
    LEFT JOIN LATERAL (
        SELECT event_no, event_hash FROM penstock.webhook_event_id
        WHERE tenant = g.tenant AND event_id = g.id
        LIMIT 1
    ) AS known ON true
    LEFT JOIN LATERAL (
        SELECT accepted_at, item_ids FROM penstock.webhook_event
        WHERE event_no = known.event_no
        LIMIT 1
    ) AS event ON true
    WHERE g.index <> ALL (coalesce(fresh_indexes, '{}'));
END $$;
