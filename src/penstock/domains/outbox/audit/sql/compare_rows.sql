-- Compare the rows of the archive from behind ($4, $5) up to ($6, $7) of era $3 with the seals $1 to $2,
-- which cover exactly these. Returns the rows that differ: one that is only sealed was removed, one
-- that is only present was inserted, one with another hash was changed.
WITH sealed AS MATERIALIZED (
    SELECT s.seal_no, u.attempt_id, u.hash
    FROM penstock.outbox_seal AS s
    CROSS JOIN LATERAL unnest(s.attempt_ids, s.row_hashes) AS u (attempt_id, hash)
    WHERE s.seal_no BETWEEN $1::bigint AND $2::bigint AND s.kind = 'rows'
), present AS MATERIALIZED (
    SELECT a.attempt_id, a.outbox_id, penstock.outbox_attempt_hash(a, i) AS hash
    FROM penstock.outbox_attempt AS a
    LEFT JOIN penstock.outbox_instruction AS i USING (outbox_id)
    WHERE a.era = $3::smallint
        AND a.xid >= $4::text::xid8 AND (a.xid > $4::text::xid8 OR a.attempt_id > $5::uuid)
        AND a.xid <= $6::text::xid8 AND (a.xid < $6::text::xid8 OR a.attempt_id <= $7::uuid)
)
SELECT sealed.seal_no, attempt_id, present.outbox_id,
    CASE
        WHEN present.hash IS NULL THEN 'removed'
        WHEN sealed.hash IS NULL THEN 'inserted'
        ELSE 'changed'
        END AS fault
FROM sealed
FULL JOIN present USING (attempt_id)
WHERE sealed.hash IS DISTINCT FROM present.hash
ORDER BY sealed.seal_no, attempt_id
LIMIT $8::integer;
