-- Try a held item again now, with a new set of attempts. A held head has kept its order key, so it is
-- still the head.
WITH released AS (
    DELETE FROM penstock.held WHERE id = $1 RETURNING id, lane_id, attempt
), readied AS (
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT coalesce($2::timestamptz, now()), id, lane_id, attempt, attempt FROM released
), noted AS (
    INSERT INTO penstock.moved (item_id, due_at)
    SELECT id, coalesce($2::timestamptz, now()) FROM released
    ON CONFLICT DO NOTHING
)
SELECT id, pg_notify('penstock', lane_id::text) FROM released;
