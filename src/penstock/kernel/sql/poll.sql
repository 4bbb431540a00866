-- The once-a-second poll of a worker, in one statement for all its lanes: every policy, the first
-- item, wherever the worker's cursor is, and the seconds until that item is due; and the server's
-- clock, for the worker to know it.
SELECT lane.*, first.due_at AS first_due_at, first.id AS first_id,
    extract(epoch FROM first.due_at - CASE WHEN lane.rate IS NULL
        THEN lane.pre_start_buffer ELSE interval '0' END - now())::float8 AS due_in,
    extract(epoch FROM statement_timestamp())::float8 AS received_at,
    extract(epoch FROM clock_timestamp())::float8 AS answered_at
FROM unnest($1::text[]) AS asked (name)
JOIN penstock.lane USING (name)
LEFT JOIN LATERAL (
    SELECT ready.due_at, ready.id
    FROM penstock.ready
    WHERE ready.lane_id = lane.lane_id
    ORDER BY ready.due_at, ready.id
    LIMIT 1
) AS first ON lane.enabled;
