-- What a rail has reported about an instruction and is not applied yet, with what is known about
-- it. A settlement comes before a return, whichever was reported first.
SELECT r.status, r.attempt, r.code_class, r.rail_code, r.rail_reference, r.occurred_at, i.item_id,
    i.rail_type,
    -- The states that the archive has or had.
    known.states,
    -- With which codes and references it was dispatched; NULL for one in a dropped month.
    ARRAY(
        SELECT a.rail_code FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = r.outbox_id AND a.state = 'DISPATCHED'
        UNION ALL
        SELECT NULL FROM penstock.outbox_kept_state AS k
        WHERE k.outbox_id = r.outbox_id AND 'DISPATCHED' = ANY (k.states)
    ) AS dispatched_codes, ARRAY(
        SELECT a.rail_reference FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = r.outbox_id AND a.state = 'DISPATCHED'
    ) AS dispatched_references,
    calls.call_count, calls.referenced_count,
    coalesce(calls.refused_references, '{}') AS refused_references,
    past.may_be_paid,
    -- Where its item is.
    CASE
        WHEN EXISTS (SELECT FROM penstock.outbox_unknown AS u WHERE u.id = i.item_id) THEN 'in_doubt'
        ELSE coalesce((SELECT CASE
            WHEN l.state = 'leased' THEN 'in_flight'
            WHEN l.state IN ('ready', 'scheduled', 'parked', 'held') THEN 'waiting'
            ELSE 'ended' END FROM penstock.locate(ARRAY[i.item_id]) AS l LIMIT 1), 'ended')
    END AS place,
    -- Whether it was ever reported as paid, and whether as refused and not as returned.
    EXISTS (
        SELECT FROM penstock.outbox_result AS p
        WHERE p.outbox_id = r.outbox_id AND p.status IN ('paid', 'settled')
    ) AS is_reported_paid, coalesce((
        SELECT bool_and(p.status = 'refused') FROM penstock.outbox_result AS p
        WHERE p.outbox_id = r.outbox_id AND p.status IN ('refused', 'returned')
    ), false) AS is_only_refused,
    r.status IN ('refused', 'returned') AND r.rail_reference IS NOT NULL
        AND penstock.outbox_is_of_refused_call(r.outbox_id, r.rail_reference) AS is_of_refused_call
FROM penstock.outbox_result AS r
JOIN penstock.outbox_instruction AS i USING (outbox_id)
CROSS JOIN LATERAL penstock.outbox_last_states(ARRAY[r.outbox_id]) AS known
CROSS JOIN LATERAL penstock.outbox_known_calls(r.outbox_id, i.item_id) AS calls
CROSS JOIN LATERAL penstock.outbox_past_calls(r.outbox_id, i.item_id) AS past
WHERE r.outbox_id = $1 AND r.applied_at IS NULL
ORDER BY array_position(ARRAY['paid', 'settled', 'refused', 'returned'], r.status), r.attempt
FOR UPDATE OF r;
