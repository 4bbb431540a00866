-- Create a lane with the default policy and its pacing; nothing happens if the name is taken.
-- A CHECK is evaluated before a conflict is found, so the name is looked up first: the reserved
-- name of an existing lane is not refused.
WITH made AS (
    INSERT INTO penstock.lane (name, owner, guards)
    SELECT $1, $2, $3::jsonb
    WHERE NOT EXISTS (SELECT FROM penstock.lane WHERE name = $1)
    ON CONFLICT DO NOTHING
    RETURNING lane_id
), paced AS (
    INSERT INTO penstock.lane_pacing (lane_id) SELECT lane_id FROM made
)
SELECT EXISTS (SELECT FROM made);
