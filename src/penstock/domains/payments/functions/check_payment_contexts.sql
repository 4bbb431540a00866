-- Raise PS409 for an id that is stored with another item type, or with another context. Called in a
-- statement of its own, after contexts were inserted: only then is visible what another transaction has
-- stored that was waited for. A payment that is enqueued is known by its content, which its caller has
-- compared: a later release may build another context of the same content, and the stored one is kept.
CREATE OR REPLACE FUNCTION penstock.check_payment_contexts(
    item_type text, payment_ids text[], contexts jsonb[], context_versions integer[]
) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    given_type text := check_payment_contexts.item_type;
    types text;
    clash record;
BEGIN
    SELECT g.payment_id, coalesce(i.item_id, p.item_id) AS item_id, g.context,
        c.context_json AS stored_context,
        CASE WHEN c.item_type <> given_type THEN c.item_type
            WHEN p.item_type <> given_type THEN p.item_type
        END AS stored_type
    INTO clash
    FROM unnest(payment_ids, contexts, context_versions) AS g (payment_id, context, version)
    LEFT JOIN penstock.payment_exec_context AS c ON c.payment_id = g.payment_id
    LEFT JOIN penstock.payment AS p ON p.payment_id = g.payment_id
    LEFT JOIN penstock.payment_item_type AS t ON t.item_type = c.item_type
    LEFT JOIN penstock.lane ON lane.name = t.lane
    LEFT JOIN penstock.idempotency AS i ON i.lane_id = lane.lane_id AND i.key = g.payment_id
    WHERE c.item_type <> given_type OR p.item_type <> given_type
        OR (p.item_id IS NULL
            AND (c.context_json, c.context_version) IS DISTINCT FROM (g.context, g.version))
    LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    types := format('stored %s, given %s', clash.stored_type, given_type);
    RAISE EXCEPTION 'item % exists with another %', quote_literal(clash.payment_id),
        CASE WHEN clash.stored_type IS NULL THEN 'context' ELSE 'item type: ' || types END
        USING ERRCODE = 'PS409', DETAIL = jsonb_build_object(
            'key', clash.payment_id, 'item_id', clash.item_id,
            'stored_hash', encode(sha256(convert_to(clash.stored_context::text, 'UTF8')), 'hex'),
            'given_hash', encode(sha256(convert_to(clash.context::text, 'UTF8')), 'hex'),
            'field', CASE WHEN clash.stored_type IS NULL THEN 'context' ELSE 'item_type' END,
            'because', CASE WHEN clash.stored_type IS NOT NULL THEN types END)::text;
END $$;
