-- How many rows wait for their seal, counted up to $1.
WITH current AS MATERIALIZED (
    SELECT max(era) AS era FROM penstock.outbox_era
), head AS MATERIALIZED (
    SELECT s.last_xid, s.last_attempt_id
    FROM penstock.outbox_seal AS s, current
    WHERE s.era = current.era
    ORDER BY s.seal_no DESC
    LIMIT 1
)
SELECT count(*)
FROM (
    SELECT FROM penstock.outbox_attempt AS a
    WHERE a.era = (SELECT era FROM current)
        AND a.xid >= coalesce((SELECT last_xid FROM head), '0')
        AND (a.xid > coalesce((SELECT last_xid FROM head), '0')
            OR a.attempt_id > (SELECT last_attempt_id FROM head))
    LIMIT $1::integer
) AS behind;
