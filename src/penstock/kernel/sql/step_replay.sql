-- Replay the next items of the oldest unfinished job; its progress is part of the same commit.
-- Items that died after the job was created, or again during it, are left out.
WITH job AS MATERIALIZED (
    SELECT *
    FROM penstock.replay
    WHERE finished_at IS NULL
    ORDER BY replay_id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), step AS MATERIALIZED (
    SELECT dead.id
    FROM job JOIN penstock.dead USING (lane_id)
    WHERE dead.id >= job.next_item_id
        AND dead.id <= job.last_item_id
        AND dead.died_at <= job.created_at
        AND (job.reason IS NULL OR dead.reason = job.reason)
    ORDER BY dead.id
    LIMIT $1
), risen AS MATERIALIZED (
    SELECT r.id
    FROM (SELECT array_agg(id) AS ids FROM step) AS s
    CROSS JOIN LATERAL penstock.replay_dead(s.ids, coalesce($2::timestamptz, now())) AS r (id)
)
UPDATE penstock.replay
SET replayed = replay.replayed + (SELECT count(*) FROM risen),
    next_item_id = coalesce((SELECT max(id) + 1 FROM step), replay.next_item_id),
    finished_at = CASE
        WHEN (SELECT count(*) FROM step) < $1 THEN coalesce($2::timestamptz, now())
        END
FROM job
WHERE replay.replay_id = job.replay_id
RETURNING (SELECT count(*) FROM risen);
