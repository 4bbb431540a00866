-- Write how attempts of one lease ended. Fenced: without the lease row nothing happens and the
-- count is NULL. The lease is closed when $2 holds; else it keeps only what is still unsettled.
-- A retry that would come after the item's deadline is its death.
WITH fenced AS MATERIALIZED (
    SELECT token, lane_id, claimed_at FROM penstock.lease WHERE token = $1 FOR UPDATE
), closed AS (
    DELETE FROM penstock.lease USING fenced WHERE lease.token = fenced.token AND $2
), ended AS MATERIALIZED (
    SELECT e.*, f.token, f.lane_id, f.claimed_at, coalesce($12::timestamptz, now()) AS settled_at,
        coalesce($12::timestamptz, now()) + make_interval(secs => e.again_in) AS retry_at
    FROM fenced AS f, unnest(
        $3::bigint[], $4::integer[], $5::integer[], $6::text[], $7::integer[], $8::float8[],
        $9::text[], $10::jsonb[], $11::timestamptz[]
    ) AS e (item_id, attempt, forgiven, outcome, duration_ms, again_in, reason, result, due_at)
), shrunk AS (
    UPDATE penstock.lease
    SET (item_ids, attempts, forgiven) = (
        SELECT array_agg(u.id), array_agg(u.attempt), array_agg(u.forgiven)
        FROM unnest(lease.item_ids, lease.attempts, lease.forgiven) AS u (id, attempt, forgiven)
        WHERE u.id <> ALL ($3::bigint[])
    )
    FROM fenced
    WHERE lease.token = fenced.token AND NOT $2
), recorded AS (
    INSERT INTO penstock.attempt
        (item_id, token, claimed_at, settled_at, retry_at, lane_id, duration_ms, attempt, outcome,
         reason, result)
    SELECT item_id, token, claimed_at, settled_at, retry_at, lane_id, duration_ms, attempt, outcome,
        reason, result
    FROM ended
    WHERE outcome <> 'returned'
), again AS (
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT coalesce(retry_at, due_at), item_id, lane_id, attempt, forgiven
    FROM ended
    WHERE outcome IN ('retry', 'snooze', 'returned')
), held AS (
    INSERT INTO penstock.held (id, held_at, lane_id, attempt, forgiven, reason)
    SELECT item_id, settled_at, lane_id, attempt, forgiven, reason FROM ended WHERE outcome = 'hold'
), died AS (
    INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
    SELECT item_id, settled_at, lane_id, attempt, forgiven, reason FROM ended WHERE outcome = 'dead'
)
SELECT count(*) FROM fenced HAVING count(*) > 0;
