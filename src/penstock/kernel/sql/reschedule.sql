-- Change the due instant of an unclaimed item; it keeps its position within its order key.
WITH withdrawn AS MATERIALIZED (
    SELECT * FROM penstock.withdraw(ARRAY[$1::bigint])
), readied AS (
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT $2, id, lane_id, attempt, forgiven FROM withdrawn WHERE was = 'ready'
), parked AS (
    INSERT INTO penstock.parked (lane_id, order_key, position, id, due_at, attempt, forgiven)
    SELECT lane_id, order_key, position, id, $2, attempt, forgiven
    FROM withdrawn
    WHERE was = 'parked'
), noted AS (
    INSERT INTO penstock.moved (item_id, due_at) SELECT id, $2 FROM withdrawn ON CONFLICT DO NOTHING
)
SELECT withdrawn.due_at, item.not_after, pg_notify('penstock', withdrawn.lane_id::text)
FROM withdrawn JOIN penstock.item USING (id);
