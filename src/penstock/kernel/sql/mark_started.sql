-- Note in their leases which items are about to start. Committed before the handlers run, so that
-- the sweeper knows what may have been executed. Returns the leases that are still valid: items
-- of the others must not start.
WITH given AS (
    SELECT token, array_agg(id) AS ids
    FROM unnest($1::bigint[], $2::bigint[]) AS g (token, id)
    GROUP BY token
)
UPDATE penstock.lease
-- A lease without marks stays without: NULL || ids would be ids.
SET started_ids = CASE WHEN lease.started_ids IS NOT NULL THEN lease.started_ids || given.ids END
FROM given
WHERE lease.token = given.token
    AND lease.expires_at > coalesce($3::timestamptz, clock_timestamp())
RETURNING lease.token;
