-- The once-a-second poll of a worker, in one statement for all its lanes: every policy, and the
-- seconds until the next item past the worker's cursor is due.
SELECT lane.*, extract(epoch FROM due.due_at - CASE WHEN lane.rate IS NULL
    THEN lane.pre_start_buffer ELSE interval '0' END - now())::float8 AS due_in
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[]) AS seen (name, cursor_due_at, cursor_id)
JOIN penstock.lane USING (name)
LEFT JOIN LATERAL (
    SELECT ready.due_at
    FROM penstock.ready
    WHERE ready.lane_id = lane.lane_id
        AND (ready.due_at, ready.id) > (seen.cursor_due_at, seen.cursor_id)
    ORDER BY ready.due_at, ready.id
    LIMIT 1
) AS due ON lane.enabled;
