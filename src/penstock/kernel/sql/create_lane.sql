-- Make a lane with the default policy and its gate; nothing happens if the name is taken.
WITH made AS (
    INSERT INTO penstock.lane (name) VALUES ($1)
    ON CONFLICT DO NOTHING
    RETURNING lane_id
), gated AS (
    INSERT INTO penstock.gate (lane_id) SELECT lane_id FROM made
)
SELECT EXISTS (SELECT FROM made);
