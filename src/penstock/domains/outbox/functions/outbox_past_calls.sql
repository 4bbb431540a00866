-- Return what the earlier attempts of an instruction leave open: the one definition of "may have been
-- paid". `was_sent`: a rail was called, or may have been. `may_be_paid`: an attempt was lost, or was
-- held as unknown, and nothing has shown since that it was not paid, whatever else came after it.
CREATE OR REPLACE FUNCTION penstock.outbox_past_calls(of_outbox uuid, of_item bigint)
RETURNS TABLE (was_sent boolean, may_be_paid boolean)
LANGUAGE sql STABLE AS $$
    SELECT archived.was_sent OR coalesce(tried.was_sent, false),
        coalesce(archived.last_unknown > cleared.last, false)
            OR coalesce(tried.last_doubt > cleared.last, false)
    FROM (
        SELECT count(*) > 0 AS was_sent,
            max(a.attempt_no) FILTER (WHERE a.state = 'UNKNOWN') AS last_unknown
        FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = of_outbox
    ) AS archived
    CROSS JOIN (
        SELECT bool_or(t.outcome NOT IN ('hold', 'snooze') OR t.is_unknown) AS was_sent,
            max(t.attempt) FILTER (WHERE t.outcome = 'lost' OR t.is_unknown) AS last_doubt
        FROM (
            SELECT attempt, outcome, outcome = 'hold' AND (coalesce(result -> 'called' = 'true', false)
                OR (result IS NULL AND reason LIKE 'unknown: %')) AS is_unknown
            FROM penstock.attempt
            WHERE item_id = of_item
        ) AS t
    ) AS tried
    CROSS JOIN (SELECT coalesce(penstock.outbox_last_cleared(of_outbox), 0) AS last) AS cleared
$$;
