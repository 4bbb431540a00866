-- How long the first row behind the last seal has been there; 0 if every row is sealed.
WITH current AS MATERIALIZED (
    SELECT max(era) AS era FROM penstock.outbox_era
), head AS MATERIALIZED (
    SELECT s.last_xid, s.last_attempt_id
    FROM penstock.outbox_seal AS s, current
    WHERE s.era = current.era
    ORDER BY s.seal_no DESC
    LIMIT 1
)
SELECT coalesce(extract(epoch FROM now() - (
    SELECT a.created_at
    FROM penstock.outbox_attempt AS a
    WHERE a.era = (SELECT era FROM current)
        AND a.xid >= coalesce((SELECT last_xid FROM head), '0')
        AND (a.xid > coalesce((SELECT last_xid FROM head), '0')
            OR a.attempt_id > (SELECT last_attempt_id FROM head))
    ORDER BY a.xid
    LIMIT 1
)), 0)::float8 AS value;
