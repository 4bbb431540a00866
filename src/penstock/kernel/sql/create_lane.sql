-- Create a lane with the default policy and its pacing; nothing happens if the name is taken.
WITH made AS (
    INSERT INTO penstock.lane (name) VALUES ($1)
    ON CONFLICT DO NOTHING
    RETURNING lane_id
), paced AS (
    INSERT INTO penstock.lane_pacing (lane_id) SELECT lane_id FROM made
)
SELECT EXISTS (SELECT FROM made);
