-- Make the instructions of a rail due that wait for it to open: their next attempt applies the calendar
-- that is there then. What waits for another reason keeps its instant. One that an operator holds is
-- due once it is released. $3 is how the reasons of those begin.
WITH outbox AS (
    SELECT lane_id FROM penstock.lane WHERE name = $1
), waiting AS MATERIALIZED (
    SELECT ready.id, ready.due_at FROM penstock.ready JOIN outbox USING (lane_id)
    WHERE ready.due_at > now()
    UNION ALL
    SELECT held.id, held.due_at FROM penstock.held JOIN outbox USING (lane_id)
    WHERE held.due_at > now()
), closed AS MATERIALIZED (
    -- Looked up one by one: in a join the planner may read a whole table, and these grow.
    SELECT waiting.id, waiting.due_at
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT FROM penstock.outbox_instruction AS i
        WHERE i.item_id = waiting.id AND i.rail_type = $2
        LIMIT 1
    ) AS own
    CROSS JOIN LATERAL (
        SELECT outcome, reason FROM penstock.attempt
        WHERE attempt.item_id = waiting.id
        ORDER BY attempt DESC
        LIMIT 1
    ) AS last
    WHERE last.outcome = 'snooze' AND last.reason ^@ $3
)
SELECT penstock.move_due_instants(array_agg(id), array_agg(due_at), array_agg(now()))
FROM closed
HAVING count(*) > 0;
