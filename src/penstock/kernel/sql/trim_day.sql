-- Examine the next $1 items of the oldest day that is being trimmed, in the order of their ids; the
-- position is part of the same commit. Another sweeper takes another day.
WITH job AS MATERIALIZED (
    SELECT day, trimmed_lanes, next_id, (day + 1 - date '1970-01-01')::bigint << 32 AS high
    FROM penstock.history_day
    WHERE trimmed_lanes IS NOT NULL
    ORDER BY day
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), examined AS MATERIALIZED (
    SELECT item.id, item.lane_id = ANY (job.trimmed_lanes) AS is_of_lane
    FROM job
    CROSS JOIN LATERAL (
        SELECT id, lane_id FROM penstock.item
        WHERE id >= job.next_id AND id < job.high
        ORDER BY id
        LIMIT $1
    ) AS item
), step AS MATERIALIZED (
    SELECT count(*) AS examined, max(id) AS last_id, count(*) < $1 AS is_finished FROM examined
), trimmed AS MATERIALIZED (
    SELECT penstock.trim_items(
        ARRAY(SELECT id FROM examined WHERE is_of_lane), coalesce($2::timestamptz, now())) AS items
)
UPDATE penstock.history_day
SET trimmed_lanes = CASE WHEN NOT step.is_finished THEN job.trimmed_lanes END,
    next_id = CASE WHEN NOT step.is_finished THEN step.last_id + 1 END
FROM job, step, trimmed
WHERE history_day.day = job.day
RETURNING history_day.day, step.examined, step.is_finished, trimmed.items;
