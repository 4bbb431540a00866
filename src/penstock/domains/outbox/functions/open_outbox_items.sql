-- Return the items of the outbox that may still be sent by themselves: waiting, in flight or held. A
-- dead one only an operator sends again, and the kernel keeps its attempts.
CREATE OR REPLACE FUNCTION penstock.open_outbox_items() RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    WITH outbox AS (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
    SELECT id FROM penstock.ready JOIN outbox USING (lane_id)
    UNION ALL
    SELECT id FROM penstock.parked JOIN outbox USING (lane_id)
    UNION ALL
    SELECT unnest(item_ids) FROM penstock.lease JOIN outbox USING (lane_id)
    UNION ALL
    SELECT id FROM penstock.held JOIN outbox USING (lane_id)
$$;
