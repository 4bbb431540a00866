-- Create a replay of the items that are dead now; the sweeper runs it in steps.
WITH matching AS (
    SELECT count(*) AS counted, coalesce(max(dead.id), 0) AS last_item_id
    FROM penstock.dead JOIN penstock.item USING (id)
    WHERE dead.lane_id = $1
        AND ($2::text IS NULL OR dead.reason = $2)
        AND (item.not_after IS NULL OR item.not_after > coalesce($4::timestamptz, now()))
), started AS (
    INSERT INTO penstock.replay (lane_id, reason, last_item_id, counted, created_at, created_by)
    SELECT $1, $2, last_item_id, counted, coalesce($4::timestamptz, now()), $3
    FROM matching
    RETURNING *
)
SELECT started.*, lane.name AS lane FROM started JOIN penstock.lane USING (lane_id);
