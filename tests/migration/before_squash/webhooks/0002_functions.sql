-- The public interface in SQL: events are accepted in anybody's transaction, from any language.

-- Every pattern that an event's type matches: itself, '*', and each of its beginnings with '.*'.
CREATE FUNCTION penstock.webhook_patterns(type text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[type, '*'] || ARRAY(
        SELECT array_to_string(segments[1:n], '.') || '.*'
        FROM string_to_array(type, '.') AS segments, generate_series(1, cardinality(segments) - 1) AS n)
$$;

-- Accept events with all their deliveries. Arrays run parallel; an event without an id is given one.
-- One row per event, in any order. Outcomes: accepted; existing (the same event was accepted before);
-- conflict (its id, or its idempotency key, stands for another event; nothing was done).
CREATE FUNCTION penstock.accept_events(
    tenants text[], event_ids text[], types text[], sources text[], datas text[],
    idempotency_keys text[], at timestamptz DEFAULT NULL
) RETURNS TABLE (
    index bigint, outcome text, event_id text, accepted_at timestamptz, deliveries integer
)
LANGUAGE plpgsql
-- A plan that was made while the tables were small would be kept, and walk over them, when they grow.
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
    -- Deliveries to be, in the order of their events.
    for_events bigint[];
    for_subscriptions integer[];
    order_keys text[];
    item_ids bigint[];
BEGIN
    IF cardinality(array_remove(idempotency_keys, NULL)) > 0 THEN
        -- Keys are taken in their own order, so that two callers with the same ones cannot deadlock.
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

    WITH newcomer AS MATERIALIZED (
        -- Joined, not subscripted: each look into an array of texts walks over all before it.
        SELECT event_no, tenant, type, data
        FROM unnest(tenants, types, datas) WITH ORDINALITY AS g (tenant, type, data, index)
        JOIN unnest(fresh_indexes, fresh_nos) AS f (index, event_no) USING (index)
    ), interest AS MATERIALIZED (
        -- Events that come together are of a few types.
        SELECT DISTINCT kind.tenant, kind.type, s.subscription_no, s.subscription_id,
            s.filter_path::text, s.ordering_path
        -- A test is for the one subscription that it is sent to.
        FROM (SELECT DISTINCT tenant, type FROM newcomer WHERE type <> 'penstock.test') AS kind
        CROSS JOIN LATERAL unnest(penstock.webhook_patterns(kind.type)) AS matching (pattern)
        -- One by one: the planner may take a join for a walk over all that anybody wants.
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
        FROM newcomer JOIN interest USING (tenant, type)
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

    -- With a conflict nothing was done: whoever repairs the event may use the same key for it.
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

-- Accept one event; the SQL interface for producers who have just one.
CREATE FUNCTION penstock.accept_event(
    type text, data jsonb, event_id text DEFAULT NULL, source text DEFAULT NULL,
    tenant text DEFAULT 'default', idempotency_key text DEFAULT NULL
) RETURNS TABLE (outcome text, event_id text, accepted_at timestamptz, deliveries integer)
LANGUAGE sql AS $$
    SELECT outcome, event_id, accepted_at, deliveries
    FROM penstock.accept_events(
        ARRAY[accept_event.tenant], ARRAY[accept_event.event_id], ARRAY[accept_event.type],
        ARRAY[accept_event.source], ARRAY[accept_event.data::text], ARRAY[accept_event.idempotency_key])
$$;

-- What makes two events the same. The separator cannot stand in a type or, unescaped, in JSON.
-- STABLE, as convert_to is: only so it is inlined.
CREATE FUNCTION penstock.webhook_hash(type text, source text, data text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(convert_to(type || E'\x1f' || coalesce(source, '') || E'\x1f' || data, 'UTF8'));

-- Whether an event's data meets a filter; a filter that cannot be judged is not met.
CREATE FUNCTION penstock.webhook_is_wanted(data text, filter_path text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(jsonb_path_match(data::jsonb, filter_path::jsonpath, '{}', true), false);

-- The line in which a delivery stands, or NULL: its subscriber does not ask for order, or the event
-- has no such key. Long keys are hashed.
CREATE FUNCTION penstock.webhook_order_key(subscription_id text, ordering_path text[], data text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN ordering_path IS NOT NULL THEN (
        SELECT subscription_id || ':' || CASE WHEN length(key) <= 128 THEN key ELSE md5(key) END
        FROM (SELECT data::jsonb #>> ordering_path AS key) AS found
    ) END
$$;

-- Enqueue deliveries, those with an order key in the lane that keeps order, and return their items.
CREATE FUNCTION penstock.enqueue_deliveries(
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
                'webhooks', penstock.delivery_payloads(
                    enqueue_deliveries.events, enqueue_deliveries.subscriptions),
                NULL, enqueue_deliveries.due_ats, NULL, NULL, enqueue_deliveries.at)
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
            'webhooks.ordered', penstock.delivery_payloads(events, subscriptions), NULL, due_ats,
            order_keys, NULL, enqueue_deliveries.at)
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
            'webhooks', penstock.delivery_payloads(events, subscriptions), NULL, due_ats, NULL,
            NULL, enqueue_deliveries.at)
        WHERE events IS NOT NULL
    )
    SELECT array_agg(item_id ORDER BY place) INTO ids
    FROM (SELECT * FROM ordered UNION ALL SELECT * FROM plain) AS enqueued;
    RETURN ids;
END $$;

CREATE FUNCTION penstock.delivery_payloads(events bigint[], subscriptions integer[]) RETURNS jsonb[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_agg(
        jsonb_build_object('event', event_no, 'subscription', subscription_no) ORDER BY place)
    FROM unnest(events, subscriptions) WITH ORDINALITY AS d (event_no, subscription_no, place)
$$;
