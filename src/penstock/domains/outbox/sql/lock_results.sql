-- What a rail has reported about an instruction and is not applied yet, with the states that the
-- archive has. A settlement comes before a return, whichever was reported first.
SELECT r.status, r.rail_code, r.rail_reference, r.occurred_at, i.item_id, ARRAY(
        SELECT DISTINCT a.state FROM penstock.outbox_attempt AS a WHERE a.outbox_id = r.outbox_id
    ) AS states
FROM penstock.outbox_result AS r JOIN penstock.outbox_instruction AS i USING (outbox_id)
WHERE r.outbox_id = $1 AND r.applied_at IS NULL
ORDER BY array_position(ARRAY['paid', 'settled', 'refused', 'returned'], r.status)
FOR UPDATE OF r;
