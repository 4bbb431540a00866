-- Since when an item is where it is, which lease holds it, and how its last attempt ended.
SELECT coalesce($2::timestamptz, clock_timestamp()) AS now,
    coalesce(held.held_at, dead.died_at, cancelled.cancelled_at, lease.claimed_at) AS since,
    lease.worker, lease.token, lease.expires_at, lease.started_ids IS NOT NULL AS marks_starts,
    subject.id = ANY (lease.started_ids) AS has_started,
    last.attempt, last.outcome, last.reason AS last_reason, last.settled_at
FROM (SELECT $1::bigint AS id) AS subject
LEFT JOIN penstock.held USING (id)
LEFT JOIN penstock.dead USING (id)
LEFT JOIN penstock.cancelled USING (id)
LEFT JOIN LATERAL (
    SELECT * FROM penstock.lease WHERE subject.id = ANY (item_ids) LIMIT 1
) AS lease ON true
LEFT JOIN LATERAL (
    SELECT attempt, outcome, reason, settled_at FROM penstock.attempt
    WHERE item_id = subject.id
    ORDER BY attempt DESC
    LIMIT 1
) AS last ON true;
