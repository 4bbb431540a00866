-- Save the contexts of items of one type and enqueue the items, in the caller's transaction: the last
-- step of the first phase. The arrays are parallel; a NULL exec_time means now, and in a lane with a slot
-- pool it is the earliest instant. A context is inserted once and never changed, and an item is known by
-- its id, so a repeat changes nothing and returns what is stored. A payment gets its item and its instant.
-- Raises PS404 for an item type without a row in payment_item_type, and PS409 for an id that is known
-- with another item type or another context.
CREATE OR REPLACE FUNCTION penstock.save_context_and_enqueue(
    item_type text,
    payment_ids text[],
    contexts jsonb[],
    context_versions integer[],
    exec_times timestamptz[],
    at timestamptz DEFAULT now()
) RETURNS TABLE (payment_id text, item_id bigint, scheduled_at timestamptz, is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    lane_name text;
    saved_count integer;
    ids bigint[];
    are_new boolean[];
BEGIN
    SELECT t.lane INTO lane_name
    FROM penstock.payment_item_type AS t
    WHERE t.item_type = save_context_and_enqueue.item_type;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown item type %', quote_nullable(save_context_and_enqueue.item_type)
            USING ERRCODE = 'PS404';
    END IF;

    INSERT INTO penstock.payment_exec_context
        (payment_id, item_type, context_json, context_version, created_at, updated_at)
    SELECT g.payment_id, save_context_and_enqueue.item_type, g.context, g.version,
        save_context_and_enqueue.at, save_context_and_enqueue.at
    FROM unnest(payment_ids, contexts, context_versions) AS g (payment_id, context, version)
    -- A lookup for each payment: with NOT EXISTS the planner may read all payments.
    WHERE coalesce(
        (SELECT p.item_type FROM penstock.payment AS p WHERE p.payment_id = g.payment_id),
        save_context_and_enqueue.item_type) = save_context_and_enqueue.item_type
    ORDER BY g.payment_id
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS saved_count = ROW_COUNT;
    IF saved_count < cardinality(payment_ids) THEN
        PERFORM penstock.check_payment_contexts(
            save_context_and_enqueue.item_type, payment_ids, contexts, context_versions);
    END IF;

    SELECT array_agg(e.item_id ORDER BY e.index), array_agg(e.is_new ORDER BY e.index)
    INTO ids, are_new
    FROM penstock.enqueue_many(
        lane_name,
        ARRAY(
            SELECT jsonb_build_object('payment_id', g.payment_id)
            FROM unnest(payment_ids) WITH ORDINALITY AS g (payment_id, index)
            ORDER BY g.index),
        payment_ids, exec_times, array_fill(NULL::text, ARRAY[cardinality(payment_ids)]),
        array_fill(NULL::timestamptz, ARRAY[cardinality(payment_ids)]),
        at => save_context_and_enqueue.at, owner => 'payments') AS e;

    -- The slot pool of the lane, if it has one, has decided about the instant.
    UPDATE penstock.payment AS p
    SET item_id = g.item_id, scheduled_at = item.due_at, updated_at = save_context_and_enqueue.at
    FROM unnest(payment_ids, ids) AS g (payment_id, item_id)
    JOIN penstock.item ON item.id = g.item_id
    WHERE p.payment_id = g.payment_id AND p.item_id IS NULL
        AND p.item_type = save_context_and_enqueue.item_type;

    RETURN QUERY
    SELECT g.payment_id, g.item_id, coalesce(p.scheduled_at, item.due_at), g.is_new
    FROM unnest(payment_ids, ids, are_new) AS g (payment_id, item_id, is_new)
    LEFT JOIN penstock.payment AS p ON p.payment_id = g.payment_id AND p.item_id = g.item_id
    LEFT JOIN penstock.item ON item.id = g.item_id;
END $$;
