-- A lane may name a slot pool: its items are then due in slots of that pool, taken when they are
-- accepted and given back when they are cancelled. What a slot is, is not the kernel's affair: whoever
-- has slot pools replaces the two functions of this seam.

ALTER TABLE penstock.lane ADD COLUMN slot_pool text COLLATE "C";

-- Return the instant at which each item is due, at or after the one it wants.
CREATE FUNCTION penstock.take_due_instants(
    pool text, item_ids bigint[], wanted timestamptz[], at timestamptz
) RETURNS TABLE (item_id bigint, due_at timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'there are no slot pools here' USING ERRCODE = 'PS404';
END $$;

-- Give back what an item has taken, if it has.
CREATE FUNCTION penstock.give_back_due_instant(item_id bigint, at timestamptz) RETURNS void
LANGUAGE sql AS 'SELECT';

-- Give unclaimed items other due instants; in the lines of their keys they keep their places. Items
-- that somebody holds in this moment, that wait for another try, or that a person has rescheduled are
-- no longer due when their slot was, and are left as they are.
CREATE FUNCTION penstock.move_due_instants(
    item_ids bigint[], from_ats timestamptz[], to_ats timestamptz[]
) RETURNS void
LANGUAGE sql AS $$
    WITH subject AS MATERIALIZED (
        SELECT item.id, item.lane_id, item.order_key, given.from_at, given.to_at
        FROM unnest(item_ids, from_ats, to_ats) AS given (id, from_at, to_at)
        CROSS JOIN LATERAL (
            SELECT id, lane_id, order_key FROM penstock.item WHERE item.id = given.id LIMIT 1
        ) AS item
    ), ready_place AS MATERIALIZED (
        SELECT subject.to_at, found.ctid AS place
        FROM subject
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.ready
            WHERE lane_id = subject.lane_id AND due_at = subject.from_at AND id = subject.id
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS found
    ), rescheduled AS (
        UPDATE penstock.ready SET due_at = ready_place.to_at
        FROM ready_place
        WHERE ready.ctid = ready_place.place
        RETURNING ready.id, ready.due_at
    ), parked_place AS MATERIALIZED (
        SELECT subject.to_at, found.ctid AS place
        FROM subject
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.parked
            WHERE lane_id = subject.lane_id AND order_key = subject.order_key AND id = subject.id
                AND due_at = subject.from_at
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS found
    ), parked AS (
        UPDATE penstock.parked SET due_at = parked_place.to_at
        FROM parked_place
        WHERE parked.ctid = parked_place.place
        RETURNING parked.id, parked.due_at
    )
    INSERT INTO penstock.moved (item_id, due_at)
    SELECT id, due_at FROM rescheduled UNION ALL SELECT id, due_at FROM parked
    ON CONFLICT DO NOTHING
$$;

-- Take slots for those of many items whose keys are not known yet; of several with one key, for the
-- first. One row per position: the item's id, which is NULL where no slot was taken, and its due_at.
CREATE FUNCTION penstock.slot_newcomers(
    policy penstock.lane, keys text[], due_ats timestamptz[], at timestamptz
) RETURNS TABLE (index bigint, item_id bigint, due_at timestamptz)
LANGUAGE sql AS $$
    WITH given AS MATERIALIZED (
        SELECT g.index, g.due_at, CASE
            WHEN g.key IS NULL OR (
                row_number() OVER (PARTITION BY g.key ORDER BY g.index) = 1
                AND (
                    SELECT true FROM penstock.idempotency AS known
                    WHERE known.lane_id = policy.lane_id AND known.key = g.key
                ) IS NULL)
            THEN nextval('penstock.item_id')
        END AS item_id
        FROM unnest(keys, due_ats) WITH ORDINALITY AS g (key, due_at, index)
    ), slot AS MATERIALIZED (
        SELECT taken.*
        FROM (
            SELECT array_agg(item_id ORDER BY index) AS ids,
                array_agg(coalesce(due_at, slot_newcomers.at) ORDER BY index) AS wanted
            FROM given
            WHERE item_id IS NOT NULL
        ) AS newcomers
        CROSS JOIN LATERAL penstock.take_due_instants(
            policy.slot_pool, ids, wanted, slot_newcomers.at) AS taken
        WHERE ids IS NOT NULL
    )
    SELECT given.index, given.item_id, coalesce(slot.due_at, given.due_at)
    FROM given LEFT JOIN slot USING (item_id)
$$;

-- Accept many items for one lane, in the caller's transaction. Arrays run parallel; a NULL due_at
-- means now; in a lane with a slot pool it is the earliest instant, and the slot is what counts.
-- Returns one row per position; is_new is false where the key was known already.
-- Raises PS404 for an unknown lane, PS413 for a payload over the lane's limit, and PS409 with both
-- hashes when a key comes back with another payload.
CREATE OR REPLACE FUNCTION penstock.enqueue_many(
    lane text,
    payloads jsonb[],
    keys text[],
    due_ats timestamptz[],
    order_keys text[],
    not_afters timestamptz[],
    at timestamptz DEFAULT now()
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

    IF policy.slot_pool IS NOT NULL THEN
        SELECT array_agg(s.item_id ORDER BY s.index), array_agg(s.due_at ORDER BY s.index)
        INTO slotted_ids, due_ats
        FROM penstock.slot_newcomers(policy, keys, due_ats, enqueue_many.at) AS s;
    END IF;

    -- Keys are taken in their own order, so that two producers with the same keys cannot deadlock.
    WITH given AS MATERIALIZED (
        SELECT index, coalesce(slotted_id, nextval('penstock.item_id')) AS id, payload, octet_length(body) AS bytes, key,
            CASE WHEN key IS NOT NULL THEN sha256(convert_to(body, 'UTF8')) END AS payload_hash,
            coalesce(due_at, enqueue_many.at) AS due_at, order_key, not_after
        FROM (
            SELECT u.*, payload::text AS body
            FROM unnest(payloads, keys, due_ats, order_keys, not_afters, slotted_ids) WITH ORDINALITY
                AS u (payload, key, due_at, order_key, not_after, slotted_id, index)
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
    ), judged AS MATERIALIZED (
        SELECT given.*, key IS NULL OR fresh.item_id IS NOT NULL AS is_new
        FROM given LEFT JOIN fresh ON fresh.item_id = given.id
    ), body AS (
        INSERT INTO penstock.item
            (id, due_at, not_after, created_at, lane_id, key, order_key, payload)
        SELECT id, due_at, not_after, enqueue_many.at, policy.lane_id, key, order_key, payload
        FROM judged
        WHERE is_new
    ), timed AS (
        INSERT INTO penstock.deadline (not_after, item_id)
        SELECT not_after, id FROM judged WHERE is_new AND not_after IS NOT NULL
    ), readied AS (
        INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
        SELECT due_at, id, policy.lane_id, 0, 0
        FROM judged
        WHERE is_new AND (policy.ordering = 'none' OR order_key IS NULL)
    )
    SELECT array_agg(id ORDER BY index), array_agg(is_new ORDER BY index), max(bytes),
        bool_or(is_new AND due_at <= enqueue_many.at + interval '1 second')
    INTO ids, are_new, bytes_max, is_due_soon
    FROM judged;

    IF bytes_max > policy.payload_bytes_max THEN
        RAISE EXCEPTION 'payload of % bytes is over the limit of %', bytes_max, policy.payload_bytes_max
            USING ERRCODE = 'PS413';
    END IF;

    IF false = ANY (are_new) THEN
        -- Somebody else has brought the same key while we took its slot.
        PERFORM penstock.give_back_due_instant(g.id, enqueue_many.at)
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
            RAISE EXCEPTION 'key % already stands for another payload', quote_literal(clash.key)
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

    -- Work that is due later is found by the poll; a notification now would wake workers for nothing.
    IF is_due_soon THEN
        PERFORM pg_notify('penstock', policy.lane_id::text);
    END IF;

    RETURN QUERY
    SELECT g.index, g.id, g.is_new
    FROM unnest(ids, are_new) WITH ORDINALITY AS g (id, is_new, index);
END $$;

-- Accept what COPY has put into the session's staging table, in its order. Nearly always every key
-- is new and nothing has to be looked up: then a plain INSERT, which is a quarter faster than one
-- that expects conflicts, straight from the table. If a key is known after all, and for lanes with
-- an order or a slot pool, enqueue_many does it instead. One subtransaction per call, so for bulk only.
CREATE OR REPLACE FUNCTION penstock.enqueue_staged(lane text, at timestamptz)
RETURNS TABLE (index bigint, item_id bigint, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    policy penstock.lane;
    ids bigint[];
    bytes_max integer;
    is_due_soon boolean;
BEGIN
    SELECT * INTO policy FROM penstock.lane WHERE name = enqueue_staged.lane;
    IF policy.ordering = 'none' AND policy.slot_pool IS NULL THEN
        BEGIN
            WITH given AS MATERIALIZED (
                SELECT index, nextval('penstock.item_id') AS id, payload,
                    octet_length(body) AS bytes, key,
                    CASE WHEN key IS NOT NULL THEN sha256(convert_to(body, 'UTF8')) END
                        AS payload_hash,
                    coalesce(due_at, enqueue_staged.at) AS due_at, order_key, not_after
                FROM (
                    SELECT staged.*, payload::text AS body
                    FROM pg_temp.penstock_staged AS staged
                    ORDER BY index
                ) AS u
            ), fresh AS (
                INSERT INTO penstock.idempotency (lane_id, key, item_id, payload_hash)
                SELECT policy.lane_id, key, id, payload_hash
                FROM given
                WHERE key IS NOT NULL
                ORDER BY key
            ), body AS (
                INSERT INTO penstock.item
                    (id, due_at, not_after, created_at, lane_id, key, order_key, payload)
                SELECT id, due_at, not_after, enqueue_staged.at, policy.lane_id, key, order_key,
                    payload
                FROM given
            ), timed AS (
                INSERT INTO penstock.deadline (not_after, item_id)
                SELECT not_after, id FROM given WHERE not_after IS NOT NULL
            ), readied AS (
                INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
                SELECT due_at, id, policy.lane_id, 0, 0 FROM given
            )
            SELECT array_agg(id ORDER BY index), max(bytes),
                bool_or(due_at <= enqueue_staged.at + interval '1 second')
            INTO ids, bytes_max, is_due_soon
            FROM given;
        EXCEPTION WHEN unique_violation THEN
            ids := NULL;
        END;
    END IF;

    IF ids IS NULL THEN
        RETURN QUERY
        SELECT accepted.*
        FROM (
            SELECT array_agg(payload ORDER BY index) AS payloads,
                array_agg(key ORDER BY index) AS keys, array_agg(due_at ORDER BY index) AS due_ats,
                array_agg(order_key ORDER BY index) AS order_keys,
                array_agg(not_after ORDER BY index) AS not_afters
            FROM pg_temp.penstock_staged
        ) AS staged
        CROSS JOIN LATERAL penstock.enqueue_many(
            lane, payloads, keys, due_ats, order_keys, not_afters, enqueue_staged.at) AS accepted;
        RETURN;
    END IF;
    IF bytes_max > policy.payload_bytes_max THEN
        RAISE EXCEPTION 'payload of % bytes is over the limit of %', bytes_max, policy.payload_bytes_max
            USING ERRCODE = 'PS413';
    END IF;
    IF is_due_soon THEN
        PERFORM pg_notify('penstock', policy.lane_id::text);
    END IF;
    RETURN QUERY
    SELECT g.index, g.id, true FROM unnest(ids) WITH ORDINALITY AS g (id, index);
END $$;
