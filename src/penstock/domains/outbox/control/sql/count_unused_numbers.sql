-- How many numbers producers took without sending an instruction, up to $1, whether the last one was
-- taken within $2, and which it is.
SELECT count(*) AS numbers, max(n.at) > now() - $2::interval AS is_recent,
    (array_agg(n.participant_id || ' ' || n.sequence_id ORDER BY n.gap_id DESC))[1] AS last
FROM (
    SELECT participant_id, sequence_id, gap_id, at
    FROM penstock.outbox_taken_number
    ORDER BY gap_id DESC
    LIMIT $1
) AS n;
