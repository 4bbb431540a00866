-- Take lookups that are due, up to $1 of each rail, so that many of one do not delay those of others;
-- no other process takes them for the duration $2.
WITH due AS MATERIALIZED (
    SELECT item_id
    FROM (
        SELECT item_id, row_number() OVER (PARTITION BY rail_type ORDER BY due_at) AS place
        FROM penstock.outbox_lookup
        WHERE due_at <= coalesce($3::timestamptz, now())
    ) AS ranked
    WHERE place <= $1
), taken AS MATERIALIZED (
    SELECT k.item_id
    FROM penstock.outbox_lookup AS k JOIN due USING (item_id)
    WHERE k.due_at <= coalesce($3::timestamptz, now())
    FOR UPDATE OF k SKIP LOCKED
)
UPDATE penstock.outbox_lookup AS k
SET due_at = coalesce($3::timestamptz, now()) + $2::interval, looks = looks + 1
FROM taken
WHERE k.item_id = taken.item_id
RETURNING k.item_id, k.attempt, k.purpose, k.looks, k.since, k.left_at,
    (SELECT held.attempt FROM penstock.held WHERE held.id = k.item_id) AS held_attempt;
