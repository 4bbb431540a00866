-- Queue items behind their order keys: the first item of a key without a head becomes ready, all
-- others are parked in the order of their positions.
CREATE OR REPLACE FUNCTION penstock.line_up(
    in_lane integer, ids bigint[], order_keys text[], positions bigint[], due_ats timestamptz[],
    attempts integer[], forgivens integer[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    opened text[] := penstock.open_keys(
        in_lane, ARRAY(SELECT DISTINCT k FROM unnest(order_keys) AS k));
BEGIN
    WITH given AS MATERIALIZED (
        SELECT g.*, o.order_key IS NOT NULL
            AND row_number() OVER (PARTITION BY g.order_key ORDER BY g.position) = 1 AS is_head
        FROM unnest(ids, order_keys, positions, due_ats, attempts, forgivens)
            AS g (id, order_key, position, due_at, attempt, forgiven)
        LEFT JOIN unnest(opened) AS o (order_key) USING (order_key)
    ), parked AS (
        INSERT INTO penstock.parked (lane_id, order_key, position, id, due_at, attempt, forgiven)
        SELECT in_lane, order_key, position, id, due_at, attempt, forgiven
        FROM given
        WHERE NOT is_head
    )
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT due_at, id, in_lane, attempt, forgiven FROM given WHERE is_head;
END $$;
