-- Accept many items for one lane, in the caller's transaction. The arrays are parallel; a NULL
-- due_at means now; in a lane with a slot pool it is the earliest instant, and the slot decides.
-- Returns one row per position; is_new is false where the key is already known.
-- Raises PS404 for an unknown lane, PS403 for a lane of a domain that is not `owner`, PS413 for a
-- payload over the lane's limit, and PS409 with both hashes when a known key is given with another
-- payload.
CREATE OR REPLACE FUNCTION penstock.enqueue_many(
    lane text,
    payloads jsonb[],
    keys text[],
    due_ats timestamptz[],
    order_keys text[],
    not_afters timestamptz[],
    at timestamptz DEFAULT now(),
    owner text DEFAULT NULL,
    limit_keys jsonb[] DEFAULT NULL
) RETURNS TABLE (index bigint, item_id bigint, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    policy penstock.lane;
    ids bigint[];
    are_new boolean[];
    bytes_max integer;
    is_due_soon boolean;
    slotted_ids bigint[];
    clash record;
BEGIN
    SELECT * INTO policy FROM penstock.lane WHERE name = enqueue_many.lane;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown lane %', quote_nullable(lane) USING ERRCODE = 'PS404';
    END IF;
    IF policy.owner IS DISTINCT FROM enqueue_many.owner THEN
        PERFORM penstock.check_guard(policy, 'enqueue', enqueue_many.owner);
    END IF;

    IF policy.slot_pool IS NOT NULL THEN
        SELECT array_agg(s.item_id ORDER BY s.index), array_agg(s.due_at ORDER BY s.index)
        INTO slotted_ids, due_ats
        FROM penstock.slot_newcomers(policy, keys, due_ats, enqueue_many.at) AS s;
    END IF;

    -- Keys are inserted in sorted order, so that two producers with the same keys cannot deadlock.
    WITH given AS MATERIALIZED (
        SELECT index, coalesce(slotted_id, nextval('penstock.item_id')) AS id, payload,
            octet_length(body) AS bytes, key,
            CASE WHEN key IS NOT NULL THEN sha256(convert_to(body, 'UTF8')) END AS payload_hash,
            coalesce(due_at, enqueue_many.at) AS due_at, order_key, not_after,
            limit_keys
        FROM (
            SELECT u.*, payload::text AS body
            FROM unnest(
                payloads, keys, due_ats, order_keys, not_afters, slotted_ids,
                enqueue_many.limit_keys
            ) WITH ORDINALITY
                AS u (payload, key, due_at, order_key, not_after, slotted_id, limit_keys, index)
            OFFSET 0
        ) AS u
    ), fresh AS (
        INSERT INTO penstock.idempotency (lane_id, key, item_id, payload_hash)
        SELECT policy.lane_id, key, id, payload_hash
        FROM given
        WHERE key IS NOT NULL
        ORDER BY key, index
        ON CONFLICT DO NOTHING
        RETURNING item_id
    ), checked AS MATERIALIZED (
        SELECT given.*, key IS NULL OR fresh.item_id IS NOT NULL AS is_new
        FROM given LEFT JOIN fresh ON fresh.item_id = given.id
    ), body AS (
        INSERT INTO penstock.item
            (id, due_at, not_after, created_at, lane_id, key, order_key, payload, limit_keys)
        SELECT id, due_at, not_after, enqueue_many.at, policy.lane_id, key, order_key, payload,
            limit_keys
        FROM checked
        WHERE is_new
    ), timed AS (
        INSERT INTO penstock.deadline (not_after, item_id)
        SELECT not_after, id FROM checked WHERE is_new AND not_after IS NOT NULL
    ), readied AS (
        INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
        SELECT due_at, id, policy.lane_id, 0, 0
        FROM checked
        WHERE is_new AND (policy.ordering = 'none' OR order_key IS NULL)
    )
    SELECT array_agg(id ORDER BY index), array_agg(is_new ORDER BY index), max(bytes),
        bool_or(is_new AND due_at <= enqueue_many.at + interval '1 second')
    INTO ids, are_new, bytes_max, is_due_soon
    FROM checked;

    IF bytes_max > policy.payload_bytes_max THEN
        RAISE EXCEPTION 'payload of % bytes is over the limit of %', bytes_max, policy.payload_bytes_max
            USING ERRCODE = 'PS413';
    END IF;

    IF false = ANY (are_new) THEN
        -- Another transaction has enqueued the same key since its slot was taken.
        PERFORM penstock.release_due_instant(g.id, enqueue_many.at)
        FROM unnest(slotted_ids, are_new) AS g (id, is_new)
        WHERE g.id IS NOT NULL AND NOT g.is_new;
        SELECT g.key, i.item_id, i.payload_hash AS stored_hash,
            sha256(convert_to(g.payload::text, 'UTF8')) AS given_hash
        INTO clash
        FROM unnest(keys, payloads, are_new) AS g (key, payload, is_new)
        JOIN penstock.idempotency AS i ON i.lane_id = policy.lane_id AND i.key = g.key
        WHERE NOT g.is_new AND i.payload_hash <> sha256(convert_to(g.payload::text, 'UTF8'))
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'key % already has another payload', quote_literal(clash.key)
                USING ERRCODE = 'PS409', DETAIL = jsonb_build_object(
                    'key', clash.key, 'item_id', clash.item_id,
                    'stored_hash', encode(clash.stored_hash, 'hex'),
                    'given_hash', encode(clash.given_hash, 'hex'))::text;
        END IF;
        SELECT array_agg(CASE WHEN g.is_new THEN g.id ELSE i.item_id END ORDER BY g.index) INTO ids
        FROM unnest(ids, keys, are_new) WITH ORDINALITY AS g (id, key, is_new, index)
        LEFT JOIN penstock.idempotency AS i ON i.lane_id = policy.lane_id AND i.key = g.key;
    END IF;

    IF policy.ordering = 'per_key' THEN
        PERFORM penstock.line_up(
            policy.lane_id, array_agg(id), array_agg(order_key), array_agg(id),
            array_agg(coalesce(due_at, enqueue_many.at)), array_agg(0), array_agg(0))
        FROM unnest(ids, are_new, order_keys, due_ats) AS g (id, is_new, order_key, due_at)
        WHERE is_new AND order_key IS NOT NULL
        HAVING count(*) > 0;
    END IF;

    -- The poll finds work that is due later; a notification now would wake workers for nothing.
    IF is_due_soon THEN
        PERFORM pg_notify('penstock', policy.lane_id::text);
    END IF;

    RETURN QUERY
    SELECT g.index, g.id, g.is_new
    FROM unnest(ids, are_new) WITH ORDINALITY AS g (id, is_new, index);
END $$;
