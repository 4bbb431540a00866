-- Return what the earlier attempts of an instruction leave open: the one definition of "may have been
-- paid". `was_sent`: a rail was called, or may have been; what cannot be known counts as sent.
-- `may_be_paid`: an attempt was lost, or was held as unknown, and nothing has shown since that it was
-- not paid, whatever else came after it.
CREATE OR REPLACE FUNCTION penstock.outbox_past_calls(of_outbox uuid, of_item bigint)
RETURNS TABLE (was_sent boolean, may_be_paid boolean)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(archived.was_sent, false) OR coalesce(tried.was_sent, false)
            -- Of a dropped month, only the attempts show whether there was a call.
            OR (tried.attempts = 0 AND EXISTS (
                SELECT FROM penstock.outbox_kept_state AS k WHERE k.outbox_id = of_outbox)),
        coalesce(archived.last_unknown > cleared.last, false)
            OR coalesce(tried.last_doubt > cleared.last, false)
    FROM (
        -- These rows are written without a call, by a control, an operator or the handler.
        SELECT bool_or(a.rail_code IS NOT NULL OR a.state NOT IN ('FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE')
                OR coalesce(a.error_code, '') NOT IN (
                    'INVALID', 'NOT_SENT', 'OVER_LIMIT', 'REJECTED', 'RELEASED', 'SKIPPED')) AS was_sent,
            max(a.attempt_no) FILTER (WHERE a.state = 'UNKNOWN') AS last_unknown
        FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = of_outbox
    ) AS archived
    CROSS JOIN (
        SELECT count(*) AS attempts,
            bool_or(t.outcome IN ('lost', 'done') OR t.is_called OR t.is_unknown
                OR (t.outcome NOT IN ('hold', 'snooze') AND t.result IS NULL)) AS was_sent,
            max(t.attempt) FILTER (WHERE t.outcome = 'lost' OR t.is_unknown) AS last_doubt
        FROM (
            SELECT a.attempt, a.outcome, a.result, b.is_called, a.outcome = 'hold' AND (b.is_called
                OR (a.result IS NULL AND a.reason LIKE 'unknown: %')) AS is_unknown
            FROM penstock.attempt AS a
            CROSS JOIN LATERAL (SELECT coalesce(a.result -> 'called' = 'true', false)) AS b (is_called)
            WHERE a.item_id = of_item
        ) AS t
    ) AS tried
    CROSS JOIN (SELECT coalesce(penstock.outbox_last_cleared(of_outbox), 0) AS last) AS cleared
$$;
