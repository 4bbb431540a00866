-- The instructions of items, and for those that were tried before ($2) what became of their calls. Both
-- lists are text, which is faster to encode.
-- A report that an instruction was paid counts for all: after a restore from a backup, one that was
-- paid was never tried. This is one index lookup for each.
-- A doubt is an attempt that may have paid: one that was lost, or held as unknown after a call.
-- Doubts up to an attempt are gone once the archive shows that it was not paid by then.
-- OFFSET 0 keeps `tried` apart, so that nothing else is looked up for most instructions.
SELECT i.outbox_id, i.item_id, i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key,
    i.rail_type, i.payload, i.amount, i.currency, i.created_at,
    past.first_called_at, past.last_ended_at, past.last_lost_at, past.first_doubt_at, past.doubts,
    past.late,
    coalesce(past.paid, (
        SELECT json_build_object('rail_reference', r.rail_reference, 'rail_code', r.rail_code,
            'is_final', r.status <> 'paid')
        FROM penstock.outbox_result AS r
        WHERE r.outbox_id = i.outbox_id
            -- After several calls, a return may be that of an earlier one.
            AND (r.status IN ('paid', 'settled')
                OR (r.status = 'returned' AND coalesce(past.call_count, 0) <= 1))
        ORDER BY r.status = 'paid'
        LIMIT 1
    )) AS paid,
    past.left_for, past.was_failed, past.call_count, past.referenced_count, past.refused_references
FROM unnest($1::text::bigint[]) AS given (item_id)
JOIN penstock.outbox_instruction AS i USING (item_id)
LEFT JOIN (
    LATERAL (SELECT i.outbox_id, i.item_id WHERE given.item_id = ANY ($2::text::bigint[]) OFFSET 0) AS tried
    CROSS JOIN LATERAL (
        SELECT attempts.*, (
                SELECT json_agg(json_build_object(
                    'token', l.token, 'outcome', l.outcome, 'result', l.result))
                FROM penstock.late_result AS l WHERE l.item_id = tried.item_id
            ) AS late, (
                SELECT json_build_object('rail_reference', p.rail_reference, 'rail_code', p.rail_code,
                    'is_final', p.state <> 'DISPATCHED')
                FROM (
                    SELECT a.state, a.rail_reference, a.rail_code FROM penstock.outbox_attempt AS a
                    WHERE a.outbox_id = tried.outbox_id
                    UNION ALL
                    -- What stays of the months of the archive that were dropped.
                    SELECT unnest(k.states), NULL, NULL FROM penstock.outbox_kept_state AS k
                    WHERE k.outbox_id = tried.outbox_id
                ) AS p
                WHERE p.state IN ('DISPATCHED', 'SETTLED', 'RETURNED')
                ORDER BY p.state = 'DISPATCHED'
                LIMIT 1
            ) AS paid, (
                SELECT 'FAILED' = ANY (known.states)
                FROM penstock.outbox_last_states(ARRAY[tried.outbox_id]) AS known
            ) AS was_failed,
            calls.call_count, calls.referenced_count, calls.refused_references
        FROM (
            SELECT min(a.claimed_at) FILTER (WHERE a.is_call) AS first_called_at,
                max(a.settled_at) FILTER (WHERE a.is_call AND a.outcome <> 'lost') AS last_ended_at,
                max(a.settled_at) FILTER (WHERE a.outcome = 'lost') AS last_lost_at,
                min(a.claimed_at) FILTER (WHERE a.is_doubt) AS first_doubt_at,
                array_agg(a.token) FILTER (WHERE a.is_doubt) AS doubts,
                max(a.error_code) FILTER (WHERE a.is_open AND a.outcome = 'hold'
                    AND a.error_code IN ('AMOUNT_MISMATCH', 'REFUSED_IN_DOUBT')) AS left_for
            FROM (SELECT penstock.outbox_last_cleared(tried.outbox_id) AS attempt_no) AS cleared
            CROSS JOIN LATERAL (
                SELECT t.claimed_at, t.settled_at, t.outcome, t.token,
                    t.result ->> 'error_code' AS error_code, b.is_call, b.is_open,
                    b.is_call AND b.is_open AND t.outcome IN ('lost', 'hold') AS is_doubt
                FROM penstock.attempt AS t
                CROSS JOIN LATERAL (
                    SELECT t.outcome = 'lost' OR coalesce(t.result -> 'called' = 'true', false)
                        OR (t.outcome = 'hold' AND t.result IS NULL AND t.reason LIKE 'unknown: %'),
                        t.attempt > coalesce(cleared.attempt_no, 0)
                ) AS b (is_call, is_open)
                WHERE t.item_id = tried.item_id
            ) AS a
        ) AS attempts
        CROSS JOIN penstock.outbox_known_calls(tried.outbox_id, tried.item_id) AS calls
    ) AS past
) ON true;
