-- What the kernel does inside the database: the public enqueue, which must be callable from any
-- language in anybody's transaction, and the few steps that several statements share.

-- Accept many items for one lane, in the caller's transaction. Arrays run parallel; a NULL due_at
-- means now. Returns one row per position; is_new is false where the key was known already.
-- Raises PS404 for an unknown lane, PS413 for a payload over the lane's limit, and PS409 with both
-- hashes when a key comes back with another payload.
CREATE FUNCTION penstock.enqueue_many(
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
    clash record;
BEGIN
    SELECT * INTO policy FROM penstock.lane WHERE name = enqueue_many.lane;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown lane %', quote_nullable(lane) USING ERRCODE = 'PS404';
    END IF;

    -- Keys are taken in their own order, so that two producers with the same keys cannot deadlock.
    WITH given AS MATERIALIZED (
        SELECT index, nextval('penstock.item_id') AS id, payload, octet_length(body) AS bytes, key,
            CASE WHEN key IS NOT NULL THEN sha256(convert_to(body, 'UTF8')) END AS payload_hash,
            coalesce(due_at, enqueue_many.at) AS due_at, order_key, not_after
        FROM (
            SELECT u.*, payload::text AS body
            FROM unnest(payloads, keys, due_ats, order_keys, not_afters) WITH ORDINALITY
                AS u (payload, key, due_at, order_key, not_after, index)
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
-- that expects conflicts, straight from the table. If a key is known after all, and for ordered
-- lanes, enqueue_many does it instead. One subtransaction per call, so for bulk only.
CREATE FUNCTION penstock.enqueue_staged(lane text, at timestamptz)
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
    IF policy.ordering = 'none' THEN
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

-- Accept one item and return its id, in the caller's transaction.
CREATE FUNCTION penstock.enqueue(
    lane text,
    payload jsonb,
    key text DEFAULT NULL,
    due_at timestamptz DEFAULT NULL,
    order_key text DEFAULT NULL,
    not_after timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE sql AS $$
    SELECT item_id
    FROM penstock.enqueue_many(
        lane, ARRAY[payload], ARRAY[key], ARRAY[due_at], ARRAY[order_key], ARRAY[not_after])
$$;

-- Give items their places in the lines of their keys: the first of a key that had no line is ready,
-- all others are parked, in the order of their positions.
CREATE FUNCTION penstock.line_up(
    in_lane integer, ids bigint[], order_keys text[], positions bigint[], due_ats timestamptz[],
    attempts integer[], forgivens integer[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    opened text[] := penstock.open_keys(
        in_lane, ARRAY(SELECT DISTINCT k FROM unnest(order_keys) AS k));
BEGIN
    WITH given AS MATERIALIZED (
        SELECT g.*, o.order_key IS NOT NULL
            AND row_number() OVER (PARTITION BY g.order_key ORDER BY g.position) = 1 AS is_head
        FROM unnest(ids, order_keys, positions, due_ats, attempts, forgivens)
            AS g (id, order_key, position, due_at, attempt, forgiven)
        LEFT JOIN unnest(opened) AS o (order_key) USING (order_key)
    ), parked AS (
        INSERT INTO penstock.parked (lane_id, order_key, position, id, due_at, attempt, forgiven)
        SELECT in_lane, order_key, position, id, due_at, attempt, forgiven
        FROM given
        WHERE NOT is_head
    )
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT due_at, id, in_lane, attempt, forgiven FROM given WHERE is_head;
END $$;

-- Make sure that every wanted key is active until the caller's transaction ends. Returns the keys
-- that were not active before: the caller provides their heads.
CREATE FUNCTION penstock.open_keys(in_lane integer, wanted text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    opened text[] := '{}';
    fresh text[];
    shared text[];
BEGIN
    -- A key may be closed between the INSERT that met it and the lock; then it is opened again.
    WHILE cardinality(wanted) > 0 LOOP
        WITH inserted AS (
            INSERT INTO penstock.active_key (lane_id, order_key)
            SELECT in_lane, k FROM unnest(wanted) AS k ORDER BY k
            ON CONFLICT DO NOTHING
            RETURNING order_key
        )
        SELECT coalesce(array_agg(order_key), '{}') INTO fresh FROM inserted;
        WITH locked AS (
            SELECT order_key FROM penstock.active_key
            WHERE lane_id = in_lane AND order_key = ANY (wanted)
            FOR KEY SHARE
        )
        SELECT coalesce(array_agg(order_key), '{}') INTO shared FROM locked;
        opened := opened || fresh;
        wanted := ARRAY(SELECT unnest(wanted) EXCEPT SELECT unnest(shared));
    END LOOP;
    RETURN opened;
END $$;

-- Put the next follower of each key into ready; close the keys that have none. The caller's
-- transaction has just ended these keys' heads, so nobody else promotes them.
CREATE FUNCTION penstock.promote(in_lane integer, keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    promoted text[] := penstock.promote_followers(in_lane, keys);
    lonely text[] := ARRAY(SELECT unnest(keys) EXCEPT SELECT unnest(promoted));
    locked text[];
BEGIN
    IF cardinality(lonely) = 0 THEN
        RETURN;
    END IF;
    -- Lock in one statement and look again in the next: a follower that parked in between is
    -- visible then. A key that a producer holds is left to the sweeper instead of waited for.
    WITH found AS (
        SELECT order_key FROM penstock.active_key
        WHERE lane_id = in_lane AND order_key = ANY (lonely)
        FOR UPDATE SKIP LOCKED
    )
    SELECT coalesce(array_agg(order_key), '{}') INTO locked FROM found;
    promoted := penstock.promote_followers(in_lane, locked);
    DELETE FROM penstock.active_key
    WHERE lane_id = in_lane
        AND order_key = ANY (ARRAY(SELECT unnest(locked) EXCEPT SELECT unnest(promoted)));
    INSERT INTO penstock.vacated_key (lane_id, order_key)
    SELECT in_lane, k FROM (SELECT unnest(lonely) EXCEPT SELECT unnest(locked)) AS missed (k)
    ON CONFLICT DO NOTHING;
END $$;

-- Move the first parked item of each key to ready and return the keys that had one.
CREATE FUNCTION penstock.promote_followers(in_lane integer, keys text[]) RETURNS text[]
LANGUAGE sql AS $$
    WITH next AS MATERIALIZED (
        SELECT k.order_key, follower.position
        FROM unnest(keys) AS k (order_key)
        CROSS JOIN LATERAL (
            SELECT position FROM penstock.parked
            WHERE lane_id = in_lane AND order_key = k.order_key
            ORDER BY position
            LIMIT 1
        ) AS follower
    ), moved AS (
        DELETE FROM penstock.parked USING next
        WHERE parked.lane_id = in_lane
            AND parked.order_key = next.order_key
            AND parked.position = next.position
        RETURNING parked.*
    ), readied AS (
        INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
        SELECT due_at, id, lane_id, attempt, forgiven FROM moved
    )
    SELECT coalesce(array_agg(order_key), '{}') FROM moved
$$;

-- Heads of keys have died: block their keys or go on without them, as the lane's policy says.
CREATE FUNCTION penstock.bury_heads(in_lane integer, ids bigint[], order_keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT on_dead_head FROM penstock.lane WHERE lane_id = in_lane) = 'block' THEN
        UPDATE penstock.active_key SET blocked_by = dead.id
        FROM unnest(ids, order_keys) AS dead (id, order_key)
        WHERE active_key.lane_id = in_lane AND active_key.order_key = dead.order_key;
    ELSE
        PERFORM penstock.promote(in_lane, order_keys);
    END IF;
END $$;

-- Every due instant that an item has had: the one in ready is among them. NULLs stay in: with a
-- condition here, the planner would read the whole history instead of looking up one item.
CREATE VIEW penstock.due_instant AS
SELECT id AS item_id, due_at FROM penstock.item
UNION ALL
SELECT item_id, retry_at FROM penstock.attempt
UNION ALL
SELECT item_id, due_at FROM penstock.moved;

-- Take unclaimed items out of ready or parked. Items that a worker holds, or that have ended, are
-- not returned and not touched.
CREATE FUNCTION penstock.withdraw(ids bigint[])
RETURNS TABLE (
    id bigint, lane_id integer, order_key text, "position" bigint, due_at timestamptz,
    attempt integer, forgiven integer, was text
)
LANGUAGE sql AS $$
    WITH subject AS MATERIALIZED (
        SELECT id, lane_id, order_key FROM penstock.item WHERE id = ANY (ids)
    ), ready_place AS MATERIALIZED (
        -- Found one by one: in a join the planner may walk a whole lane for each item.
        SELECT found.ctid
        FROM subject
        CROSS JOIN LATERAL (
            SELECT due_at FROM penstock.due_instant WHERE item_id = subject.id OFFSET 0
        ) AS instant
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.ready
            WHERE lane_id = subject.lane_id AND due_at = instant.due_at AND id = subject.id
            LIMIT 1
            FOR UPDATE
        ) AS found
    ), unreadied AS (
        DELETE FROM penstock.ready
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM ready_place))
        RETURNING id, lane_id, due_at, attempt, forgiven
    ), parked_place AS MATERIALIZED (
        SELECT found.ctid
        FROM subject
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.parked
            WHERE lane_id = subject.lane_id AND order_key = subject.order_key AND id = subject.id
            LIMIT 1
            FOR UPDATE
        ) AS found
    ), unparked AS (
        DELETE FROM penstock.parked
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM parked_place))
        RETURNING id, lane_id, order_key, position, due_at, attempt, forgiven
    )
    SELECT u.id, u.lane_id, subject.order_key, NULL::bigint, u.due_at, u.attempt, u.forgiven, 'ready'
    FROM unreadied AS u JOIN subject USING (id)
    UNION ALL
    SELECT *, 'parked' FROM unparked
$$;

-- Give dead items another set of attempts. An item that blocks its key is its head again; another
-- one takes its old place in the line ('park') or goes to the end of it. Items that are past their
-- deadline stay dead: they would only expire again. Returns the ids that are alive again.
CREATE FUNCTION penstock.replay_dead(ids bigint[], at timestamptz) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    risen record;
BEGIN
    FOR risen IN
        WITH risen AS (
            DELETE FROM penstock.dead USING penstock.item
            WHERE dead.id = ANY (ids) AND item.id = dead.id
                AND (item.not_after IS NULL OR item.not_after > replay_dead.at)
            RETURNING dead.id, dead.lane_id, dead.attempt, item.order_key
        ), noted AS (
            INSERT INTO penstock.moved (item_id, due_at) SELECT id, replay_dead.at FROM risen
            ON CONFLICT DO NOTHING
        ), unblocked AS (
            UPDATE penstock.active_key SET blocked_by = NULL
            FROM risen
            WHERE active_key.lane_id = risen.lane_id AND active_key.blocked_by = risen.id
                AND active_key.order_key = risen.order_key
            RETURNING risen.id
        ), numbered AS MATERIALIZED (
            -- Those that go to the end do so in their own order, not in that of the plan.
            SELECT sorted.*, nextval('penstock.item_id') AS last
            FROM (SELECT * FROM risen ORDER BY id) AS sorted
        ), placed AS (
            SELECT numbered.*, lane.ordering = 'per_key' AND numbered.order_key IS NOT NULL
                AND NOT EXISTS (SELECT FROM unblocked WHERE unblocked.id = numbered.id) AS lines_up,
                CASE lane.on_dead_head WHEN 'skip' THEN last ELSE numbered.id END AS position
            FROM numbered JOIN penstock.lane USING (lane_id)
        ), readied AS (
            INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
            SELECT replay_dead.at, id, lane_id, attempt, attempt FROM placed WHERE NOT lines_up
        )
        SELECT lane_id, array_agg(id) AS all_ids,
            array_agg(id) FILTER (WHERE lines_up) AS ids,
            array_agg(order_key) FILTER (WHERE lines_up) AS order_keys,
            array_agg(position) FILTER (WHERE lines_up) AS positions,
            array_agg(replay_dead.at) FILTER (WHERE lines_up) AS due_ats,
            array_agg(attempt) FILTER (WHERE lines_up) AS attempts
        FROM placed
        GROUP BY lane_id
    LOOP
        IF risen.ids IS NOT NULL THEN
            PERFORM penstock.line_up(risen.lane_id, risen.ids, risen.order_keys, risen.positions,
                risen.due_ats, risen.attempts, risen.attempts);
        END IF;
        PERFORM pg_notify('penstock', risen.lane_id::text);
        RETURN QUERY SELECT unnest(risen.all_ids);
    END LOOP;
END $$;

-- Drop a day's partitions once every lane that has items in them allows it. Rows of items that are
-- not finished, that are held or dead, or that ended within their lane's retention move to the
-- default partitions first; if those are more than a tenth of the day, the day is kept for now.
CREATE FUNCTION penstock.drop_day(day date, at timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    low bigint := (day - date '1970-01-01')::bigint << 32;
    high bigint := (day + 1 - date '1970-01-01')::bigint << 32;
    suffix text := to_char(day, 'YYYYMMDD');
    items bigint;
    is_due boolean;
BEGIN
    SELECT count(*) INTO items FROM penstock.item WHERE id >= low AND id < high;
    SELECT day + 1 <= (drop_day.at - coalesce(max(retention), '0')) AT TIME ZONE 'UTC' INTO is_due
    FROM penstock.lane
    WHERE lane_id IN (SELECT lane_id FROM penstock.item WHERE id >= low AND id < high);
    IF NOT is_due THEN
        RETURN false;
    END IF;

    CREATE TEMPORARY TABLE penstock_kept ON COMMIT DROP AS
    SELECT id FROM penstock.ready WHERE id >= low AND id < high
    UNION SELECT id FROM penstock.parked WHERE id >= low AND id < high
    UNION SELECT unnest(item_ids) FROM penstock.lease
    UNION SELECT id FROM penstock.held WHERE id >= low AND id < high
    UNION SELECT id FROM penstock.dead WHERE id >= low AND id < high
    UNION SELECT item_id FROM penstock.attempt JOIN penstock.lane USING (lane_id)
        WHERE item_id >= low AND item_id < high AND settled_at > drop_day.at - lane.retention
    UNION SELECT id FROM penstock.cancelled JOIN penstock.lane USING (lane_id)
        WHERE id >= low AND id < high AND cancelled_at > drop_day.at - lane.retention;
    DELETE FROM penstock_kept WHERE id < low OR id >= high;
    IF (SELECT count(*) FROM penstock_kept) * 10 > items THEN
        DROP TABLE penstock_kept;
        RETURN false;
    END IF;

    -- Detaching waits for everybody who reads; behind a long reader we give up and come back.
    PERFORM set_config('lock_timeout', '2s', true);
    EXECUTE format('ALTER TABLE penstock.item DETACH PARTITION penstock.item_%s', suffix);
    EXECUTE format('ALTER TABLE penstock.attempt DETACH PARTITION penstock.attempt_%s', suffix);
    EXECUTE format(
        'INSERT INTO penstock.item SELECT i.* FROM penstock.item_%s AS i JOIN penstock_kept USING (id)',
        suffix);
    EXECUTE format(
        'INSERT INTO penstock.attempt SELECT a.* FROM penstock.attempt_%s AS a '
        'JOIN penstock_kept ON penstock_kept.id = a.item_id', suffix);
    DELETE FROM penstock.cancelled
    WHERE id >= low AND id < high AND id NOT IN (SELECT id FROM penstock_kept);
    DELETE FROM penstock.late_result
    WHERE item_id >= low AND item_id < high AND item_id NOT IN (SELECT id FROM penstock_kept);
    DELETE FROM penstock.moved
    WHERE item_id >= low AND item_id < high AND item_id NOT IN (SELECT id FROM penstock_kept);
    EXECUTE format('DROP TABLE penstock.item_%s, penstock.attempt_%s', suffix, suffix);
    DROP TABLE penstock_kept;
    RETURN true;
END $$;

-- Where items are. The places exclude each other, so an item has one row.
CREATE FUNCTION penstock.locate(ids bigint[])
RETURNS TABLE (id bigint, state text, due_at timestamptz, reason text, attempts integer)
LANGUAGE sql STABLE
-- A few ids are looked up one by one, whatever old statistics make the planner think.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    WITH subject AS MATERIALIZED (
        SELECT id, lane_id, order_key FROM penstock.item WHERE id = ANY (ids)
    )
    SELECT subject.id, CASE WHEN ready.due_at > now() THEN 'scheduled' ELSE 'ready' END,
        ready.due_at, NULL, ready.attempt
    FROM subject
    CROSS JOIN LATERAL (
        SELECT DISTINCT due_at FROM penstock.due_instant WHERE item_id = subject.id
    ) AS instant
    CROSS JOIN LATERAL (
        SELECT due_at, attempt FROM penstock.ready
        WHERE lane_id = subject.lane_id AND due_at = instant.due_at AND id = subject.id
        LIMIT 1
    ) AS ready
    UNION ALL
    SELECT subject.id, 'parked', parked.due_at, NULL, parked.attempt
    FROM subject JOIN penstock.parked USING (lane_id, order_key, id)
    UNION ALL
    SELECT leased.id, 'leased', NULL, NULL, leased.attempt
    FROM penstock.lease
    CROSS JOIN LATERAL unnest(lease.item_ids, lease.attempts) AS leased (id, attempt)
    WHERE leased.id = ANY (ids)
    UNION ALL
    SELECT held.id, 'held', NULL, held.reason, held.attempt FROM penstock.held WHERE id = ANY (ids)
    UNION ALL
    SELECT dead.id, 'dead', NULL, dead.reason, dead.attempt FROM penstock.dead WHERE id = ANY (ids)
    UNION ALL
    SELECT cancelled.id, 'cancelled', NULL, NULL, NULL
    FROM penstock.cancelled WHERE id = ANY (ids)
    UNION ALL
    SELECT attempt.item_id, 'done', NULL, NULL, attempt.attempt
    FROM penstock.attempt
    WHERE item_id = ANY (ids) AND outcome = 'done'
$$;
