-- How many items of a lane are claimed before one that is ready, counted up to $4.
SELECT count(*) FROM (
    SELECT FROM penstock.ready
    WHERE lane_id = $1 AND (due_at, id) < ($2::timestamptz, $3::bigint)
    ORDER BY due_at, id
    LIMIT $4
) AS ahead;
