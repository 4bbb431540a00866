-- Return the states that instructions have had and what their last row says: from the archive, and from
-- what stays of its dropped months. `is_contradicted`: settled after it was refused.
CREATE OR REPLACE FUNCTION penstock.outbox_last_states(outbox_ids uuid[])
RETURNS TABLE (
    outbox_id uuid, states text[], is_contradicted boolean, state text, attempt_no integer,
    last_error text, rail_reference text, last_at timestamptz
)
LANGUAGE sql STABLE
-- Rows are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off
AS $$
    SELECT given.outbox_id, coalesce(archived.states, '{}') || coalesce(kept.states, '{}'),
        coalesce(archived.is_contradicted, false) OR coalesce(kept.is_contradicted, false),
        coalesce(last.state, kept.state), coalesce(last.attempt_no, kept.attempt_no),
        CASE WHEN last.state IS NULL THEN kept.last_error ELSE last.last_error END,
        CASE WHEN last.state IS NULL THEN kept.rail_reference ELSE last.rail_reference END,
        coalesce(last.created_at, kept.last_at)
    FROM unnest(outbox_last_states.outbox_ids) AS given (outbox_id)
    LEFT JOIN penstock.outbox_kept_state AS kept USING (outbox_id)
    LEFT JOIN LATERAL (
        SELECT array_agg(DISTINCT a.state) AS states,
            bool_or(a.error_code IS NOT DISTINCT FROM 'AFTER_REFUSAL') AS is_contradicted
        FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = given.outbox_id
    ) AS archived ON true
    LEFT JOIN LATERAL (
        SELECT a.state, a.attempt_no, coalesce(a.error_message, a.error_code) AS last_error,
            a.rail_reference, a.created_at
        FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = given.outbox_id AND a.created_at >= coalesce(kept.last_at, '-infinity')
        ORDER BY a.created_at DESC, a.attempt_id DESC
        LIMIT 1
    ) AS last ON true
$$;
