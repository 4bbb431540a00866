-- Take unclaimed items out of ready or parked. Items that a worker holds, or that have ended, are
-- neither returned nor changed.
CREATE OR REPLACE FUNCTION penstock.withdraw(ids bigint[])
RETURNS TABLE (
    id bigint, lane_id integer, order_key text, "position" bigint, due_at timestamptz,
    attempt integer, forgiven integer, was text
)
LANGUAGE sql AS $$
    WITH subject AS MATERIALIZED (
        SELECT id, lane_id, order_key FROM penstock.item WHERE id = ANY (ids)
    ), ready_place AS MATERIALIZED (
        -- Found one by one: in a join the planner may scan a whole lane for each item.
        SELECT found.ctid
        FROM subject
        CROSS JOIN LATERAL (
            SELECT due_at FROM penstock.due_instant WHERE item_id = subject.id OFFSET 0
        ) AS instant
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.ready
            WHERE lane_id = subject.lane_id AND due_at = instant.due_at AND id = subject.id
            LIMIT 1
            FOR UPDATE
        ) AS found
    ), unreadied AS (
        DELETE FROM penstock.ready
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM ready_place))
        RETURNING id, lane_id, due_at, attempt, forgiven
    ), parked_place AS MATERIALIZED (
        SELECT found.ctid
        FROM subject
        CROSS JOIN LATERAL (
            SELECT ctid FROM penstock.parked
            WHERE lane_id = subject.lane_id AND order_key = subject.order_key AND id = subject.id
            LIMIT 1
            FOR UPDATE
        ) AS found
    ), unparked AS (
        DELETE FROM penstock.parked
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM parked_place))
        RETURNING id, lane_id, order_key, position, due_at, attempt, forgiven
    )
    SELECT u.id, u.lane_id, subject.order_key, NULL::bigint, u.due_at, u.attempt, u.forgiven, 'ready'
    FROM unreadied AS u JOIN subject USING (id)
    UNION ALL
    SELECT *, 'parked' FROM unparked
$$;
