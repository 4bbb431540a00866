-- Compare the rows that seal $1 names one by one with the archive; returns those that differ.
SELECT u.attempt_id, a.outbox_id,
    CASE WHEN a.attempt_id IS NULL THEN 'removed' ELSE 'changed' END AS fault
FROM penstock.outbox_seal AS s
CROSS JOIN LATERAL unnest(s.attempt_ids, s.row_hashes) AS u (attempt_id, hash)
LEFT JOIN penstock.outbox_attempt AS a ON a.attempt_id = u.attempt_id
LEFT JOIN penstock.outbox_instruction AS i ON i.outbox_id = a.outbox_id
WHERE s.seal_no = $1::bigint
    AND u.hash IS DISTINCT FROM
        CASE WHEN a.attempt_id IS NOT NULL THEN penstock.outbox_attempt_hash(a, i) END
ORDER BY u.attempt_id
LIMIT $2::integer;
