-- Take lookups that are due, up to $1 of each rail and purpose, so that many of one do not delay those of
-- others; no other process takes them for the duration $2. Rails are found by jumps in the index, also
-- those whose row is removed, and the due ones of each are at its beginning. An array, because in a join
-- the planner may read the whole table.
WITH RECURSIVE rail AS (
    (SELECT rail_type FROM penstock.outbox_lookup ORDER BY rail_type LIMIT 1)
    UNION ALL
    SELECT (
        SELECT k.rail_type FROM penstock.outbox_lookup AS k
        WHERE k.rail_type > rail.rail_type
        ORDER BY k.rail_type
        LIMIT 1
    )
    FROM rail
    WHERE rail.rail_type IS NOT NULL
), due AS MATERIALIZED (
    SELECT picked.item_id
    FROM rail
    CROSS JOIN (VALUES ('unknown'), ('settlement')) AS asked (purpose)
    CROSS JOIN LATERAL (
        SELECT k.item_id FROM penstock.outbox_lookup AS k
        WHERE k.rail_type = rail.rail_type AND k.purpose = asked.purpose
            AND k.due_at <= coalesce($3::timestamptz, now())
        ORDER BY k.due_at
        LIMIT $1
        FOR UPDATE SKIP LOCKED
    ) AS picked
)
UPDATE penstock.outbox_lookup AS k
SET due_at = coalesce($3::timestamptz, now()) + $2::interval, looks = looks + 1
WHERE k.item_id = ANY (ARRAY(SELECT item_id FROM due))
RETURNING k.item_id, k.attempt, k.purpose, k.looks, k.since, k.left_at,
    (SELECT held.attempt FROM penstock.held WHERE held.id = k.item_id) AS held_attempt;
