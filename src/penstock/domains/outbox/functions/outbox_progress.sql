-- Return how far instructions are. A dead item keeps the instant at which it was due when an operator
-- ended it; the instruction has ended, and there is no next attempt.
CREATE OR REPLACE FUNCTION penstock.outbox_progress(outbox_ids uuid[])
RETURNS TABLE (
    outbox_id uuid, state text, item_state text, reason text, next_attempt_at timestamptz,
    attempt_count integer, last_error text, rail_reference text
)
LANGUAGE sql STABLE
-- Rows are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off
AS $$
    WITH subject AS MATERIALIZED (
        SELECT i.outbox_id, i.item_id
        FROM penstock.outbox_instruction AS i
        WHERE i.outbox_id = ANY (outbox_progress.outbox_ids)
    ), place AS MATERIALIZED (
        SELECT * FROM penstock.locate(ARRAY(SELECT subject.item_id FROM subject))
    )
    SELECT subject.outbox_id, penstock.outbox_state(place.state, place.reason, last.state), place.state,
        place.reason, CASE WHEN place.state <> 'dead' THEN place.due_at END,
        coalesce(place.attempts, last.attempt_no, 0),
        coalesce(last.error_message, last.error_code), last.rail_reference
    FROM subject
    LEFT JOIN place ON place.id = subject.item_id
    LEFT JOIN LATERAL (
        SELECT * FROM (
            SELECT a.state, a.attempt_no, a.error_message, a.error_code, a.rail_reference, a.created_at,
                a.attempt_id
            FROM penstock.outbox_attempt AS a
            WHERE a.outbox_id = subject.outbox_id
            UNION ALL
            -- What stays of the months of the archive that were dropped.
            SELECT k.state, k.attempt_no, k.last_error, NULL, k.rail_reference, k.last_at, k.outbox_id
            FROM penstock.outbox_kept_state AS k
            WHERE k.outbox_id = subject.outbox_id
        ) AS row
        ORDER BY row.created_at DESC, row.attempt_id DESC
        LIMIT 1
    ) AS last ON true
$$;
