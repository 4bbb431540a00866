-- What a rail has reported about an instruction and is not applied yet, with the states that the
-- archive has, the codes with which it was dispatched, whether it was ever reported as paid, and
-- whether as refused and not as returned. A settlement comes before a return, whichever was reported
-- first.
SELECT r.status, r.rail_code, r.rail_reference, r.occurred_at, i.item_id, i.rail_type, ARRAY(
        SELECT DISTINCT a.state FROM penstock.outbox_attempt AS a WHERE a.outbox_id = r.outbox_id
    ) AS states, ARRAY(
        SELECT a.rail_code FROM penstock.outbox_attempt AS a
        WHERE a.outbox_id = r.outbox_id AND a.state = 'DISPATCHED'
    ) AS dispatched_codes, EXISTS (
        SELECT FROM penstock.outbox_result AS p
        WHERE p.outbox_id = r.outbox_id AND p.status IN ('paid', 'settled')
    ) AS is_reported_paid, coalesce((
        SELECT bool_and(p.status = 'refused') FROM penstock.outbox_result AS p
        WHERE p.outbox_id = r.outbox_id AND p.status IN ('refused', 'returned')
    ), false) AS is_only_refused
FROM penstock.outbox_result AS r JOIN penstock.outbox_instruction AS i USING (outbox_id)
WHERE r.outbox_id = $1 AND r.applied_at IS NULL
ORDER BY array_position(ARRAY['paid', 'settled', 'refused', 'returned'], r.status)
FOR UPDATE OF r;
