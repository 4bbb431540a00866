-- Accept the rows of the session's staging table, in their order. Usually every key is new: then a
-- plain INSERT from the table is used, a quarter faster than ON CONFLICT. If a key is known, and
-- for lanes with ordering or a slot pool, enqueue_many is called instead. One subtransaction per
-- call, so only for bulk. The staging table of an older release has no limit_keys: the name then
-- means the NULL of `absent`, which is outside of the table's own scope.
CREATE OR REPLACE FUNCTION penstock.enqueue_staged(
    lane text, at timestamptz, owner text DEFAULT NULL
) RETURNS TABLE (index bigint, item_id bigint, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    policy penstock.lane;
    ids bigint[];
    bytes_max integer;
    is_due_soon boolean;
BEGIN
    SELECT * INTO policy FROM penstock.lane WHERE name = enqueue_staged.lane;
    IF policy.owner IS DISTINCT FROM enqueue_staged.owner THEN
        PERFORM penstock.check_guard(policy, 'enqueue', enqueue_staged.owner);
    END IF;
    IF policy.ordering = 'none' AND policy.slot_pool IS NULL THEN
        BEGIN
            WITH given AS MATERIALIZED (
                SELECT index, nextval('penstock.item_id') AS id, payload,
                    octet_length(body) AS bytes, key,
                    CASE WHEN key IS NOT NULL THEN sha256(convert_to(body, 'UTF8')) END
                        AS payload_hash,
                    coalesce(due_at, enqueue_staged.at) AS due_at, order_key, not_after,
                    limit_keys
                FROM (
                    SELECT staged.*, payload::text AS body
                    FROM (SELECT NULL::jsonb AS limit_keys) AS absent
                    CROSS JOIN LATERAL (
                        SELECT index, payload, key, due_at, order_key, not_after, limit_keys
                        FROM pg_temp.penstock_staged
                    ) AS staged
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
                    (id, due_at, not_after, created_at, lane_id, key, order_key, payload,
                     limit_keys)
                SELECT id, due_at, not_after, enqueue_staged.at, policy.lane_id, key, order_key,
                    payload, limit_keys
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
                array_agg(not_after ORDER BY index) AS not_afters,
                array_agg(listed.limit_keys ORDER BY index) AS limit_keys
            FROM (SELECT NULL::jsonb AS limit_keys) AS absent
            CROSS JOIN LATERAL (
                SELECT index, payload, key, due_at, order_key, not_after, limit_keys
                FROM pg_temp.penstock_staged
            ) AS listed
        ) AS staged
        CROSS JOIN LATERAL penstock.enqueue_many(
            lane, payloads, keys, due_ats, order_keys, not_afters, enqueue_staged.at,
            enqueue_staged.owner, staged.limit_keys) AS accepted;
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
