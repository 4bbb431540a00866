-- Try a held item again now, or when it is due if that is later, with a new set of attempts. A held
-- head has kept its order key, so it is still the head. No row for an item past its deadline: it
-- would only expire.
WITH released AS (
    DELETE FROM penstock.held USING penstock.item
    WHERE held.id = $1 AND item.id = held.id
        AND (item.not_after IS NULL OR item.not_after > coalesce($2::timestamptz, now()))
    RETURNING held.id, held.lane_id, held.attempt, held.reason,
        greatest(held.due_at, coalesce($2::timestamptz, now())) AS due_at
), readied AS (
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT due_at, id, lane_id, attempt, attempt FROM released
), noted AS (
    INSERT INTO penstock.moved (item_id, due_at) SELECT id, due_at FROM released
    ON CONFLICT DO NOTHING
)
SELECT id, reason, pg_notify('penstock', lane_id::text) FROM released;
