-- Up to $2 seals behind number $1, and whether their own hashes agree with what they hold.
SELECT s.seal_no, s.kind, s.month, s.era, s.last_xid::text AS last_xid, s.last_attempt_id,
    s.row_count, s.previous_hash, s.hash,
    s.hash = penstock.outbox_seal_hash(s) AS is_hash_right,
    s.attempt_ids IS NULL
        OR (s.rows_hash = penstock.outbox_rows_hash(s.attempt_ids, s.row_hashes)
            AND s.row_count = cardinality(s.attempt_ids)) AS are_rows_right,
    s.attempt_ids IS NOT NULL OR s.kind = 'dropped' AS is_whole,
    EXISTS (
        SELECT FROM penstock.outbox_seal AS later
        WHERE later.month = s.month AND later.kind = 'dropped' AND later.seal_no > s.seal_no
    ) AS is_dropped
FROM penstock.outbox_seal AS s
WHERE s.seal_no > $1::bigint
ORDER BY s.seal_no
LIMIT $2::integer;
