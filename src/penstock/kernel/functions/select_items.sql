-- Return the items of a lane that are held, dead or waiting unclaimed, and match the conditions; a
-- NULL condition matches all. `before` is compared with the instant of the state: held, died, due.
-- `only_heads` leaves out items that are not the head of an order key: those without a key, and
-- dead ones that block none.
CREATE OR REPLACE FUNCTION penstock.select_items(
    in_lane integer, state text, with_reason text, with_order_key text, before timestamptz,
    only_heads boolean DEFAULT false
) RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    SELECT place.id
    FROM (
        SELECT id, held_at AS at, reason FROM penstock.held
        WHERE state = 'held' AND lane_id = in_lane
        UNION ALL
        SELECT id, died_at, reason FROM penstock.dead WHERE state = 'dead' AND lane_id = in_lane
        UNION ALL
        SELECT id, due_at, NULL FROM penstock.ready WHERE state = 'waiting' AND lane_id = in_lane
    ) AS place
    WHERE (with_reason IS NULL OR place.reason = with_reason)
        AND (select_items.before IS NULL OR place.at < select_items.before)
        AND (with_order_key IS NULL OR EXISTS (
            SELECT FROM penstock.item WHERE item.id = place.id AND order_key = with_order_key))
        AND (NOT only_heads OR EXISTS (
            SELECT FROM penstock.item
            JOIN penstock.lane USING (lane_id)
            JOIN penstock.active_key USING (lane_id, order_key)
            WHERE item.id = place.id AND lane.ordering = 'per_key'
                AND (state <> 'dead' OR active_key.blocked_by = place.id)))
$$;
