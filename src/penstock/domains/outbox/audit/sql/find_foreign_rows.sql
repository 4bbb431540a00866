-- Rows that no seal covers and that the sealer never reaches: of an era that has ended, behind its last
-- seal, or of one that never began. Rows of the current era are sealed in their turn.
WITH ended AS MATERIALIZED (
    SELECT DISTINCT ON (era) era, last_xid, last_attempt_id
    FROM penstock.outbox_seal
    WHERE kind = 'rows'
    ORDER BY era, seal_no DESC
), restored AS MATERIALIZED (
    SELECT unnest(attempt_ids) AS attempt_id FROM penstock.outbox_seal WHERE kind = 'restored'
)
SELECT a.attempt_id, a.outbox_id
FROM penstock.outbox_attempt AS a
LEFT JOIN ended USING (era)
WHERE a.era <> (SELECT max(era) FROM penstock.outbox_era)
    AND (ended.last_xid IS NULL
        OR a.xid > ended.last_xid
        OR (a.xid = ended.last_xid AND a.attempt_id > ended.last_attempt_id))
    AND NOT EXISTS (SELECT FROM restored WHERE restored.attempt_id = a.attempt_id)
ORDER BY a.attempt_id
LIMIT $1::integer;
