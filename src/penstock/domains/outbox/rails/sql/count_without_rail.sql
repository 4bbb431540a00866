-- Instructions that wait for a rail that does not exist, or that the last worker could not use, by rail.
-- Up to $2 heads are looked at; $3 is what a worker writes before the name of the rail.
WITH head AS MATERIALIZED (
    SELECT id, attempt FROM penstock.ready
    WHERE lane_id = (SELECT lane_id FROM penstock.lane WHERE name = $1)
    ORDER BY due_at
    LIMIT $2
)
SELECT waiting.rail_type, rail.rail_type IS NOT NULL AS is_known, count(*) AS instructions
FROM head
JOIN penstock.outbox_instruction AS waiting ON waiting.item_id = head.id
LEFT JOIN penstock.outbox_rail AS rail USING (rail_type)
LEFT JOIN penstock.attempt AS last ON last.item_id = head.id AND last.attempt = head.attempt
WHERE rail.rail_type IS NULL OR (last.outcome = 'snooze' AND starts_with(last.reason, $3))
GROUP BY waiting.rail_type, rail.rail_type
ORDER BY waiting.rail_type;
