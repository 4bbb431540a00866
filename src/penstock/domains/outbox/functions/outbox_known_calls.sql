-- Return how many calls of an instruction its rail may have had, the references of those that it refused,
-- and of how many calls these are. Counted from the attempts and from the archive, because each is
-- removed at its own time; of a dropped month of the archive, every attempt counts as a call.
CREATE OR REPLACE FUNCTION penstock.outbox_known_calls(of_outbox uuid, of_item bigint)
RETURNS TABLE (call_count integer, referenced_count integer, refused_references text[])
LANGUAGE sql STABLE AS $$
    SELECT greatest(tried.calls, archived.calls, kept.attempts)::integer, archived.referenced::integer,
        archived.refused_references
    FROM (
        SELECT count(*) AS calls
        FROM penstock.attempt AS t
        WHERE t.item_id = of_item AND (t.outcome = 'lost' OR coalesce(t.result -> 'called' = 'true', false)
            OR (t.outcome = 'hold' AND t.result IS NULL AND t.reason LIKE 'unknown: %'))
    ) AS tried
    CROSS JOIN (
        SELECT count(DISTINCT a.attempt_no) FILTER (WHERE a.state = 'DISPATCHED' OR a.rail_code IS NOT NULL
                OR a.error_code IN ('LOST', 'NO_ANSWER', 'NO_OUTCOME', 'UNKNOWN_CODE')) AS calls,
            count(DISTINCT a.attempt_no) FILTER (WHERE is_refused) AS referenced,
            array_agg(a.rail_reference) FILTER (WHERE is_refused) AS refused_references
        FROM penstock.outbox_attempt AS a
        CROSS JOIN LATERAL (
            SELECT a.rail_reference IS NOT NULL AND a.state IN ('FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE')
        ) AS r (is_refused)
        WHERE a.outbox_id = of_outbox
    ) AS archived
    CROSS JOIN (
        SELECT coalesce(max(k.attempt_no), 0) AS attempts
        FROM penstock.outbox_kept_state AS k
        WHERE k.outbox_id = of_outbox
    ) AS kept
$$;
