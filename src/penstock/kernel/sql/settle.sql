-- Write how attempts of one lease ended. Fenced: without the lease row nothing is written and no
-- row is returned. If $2 is true the lease is deleted; otherwise it keeps its unsettled items. $3,
-- $4 and $5 have one entry per ended item. $5 is the index of its record in the arrays from $6 on;
-- many items may share one. These lists are text: encoding long arrays in the driver would take
-- most of a worker's time. $12: the lane has a total concurrency, and other workers may wait for
-- the places that become free.
WITH listed AS MATERIALIZED (
    -- Parsed once; in a condition it would be parsed for each row.
    SELECT * FROM unnest($3::text::bigint[], $4::text::integer[], $5::text::integer[])
        AS e (id, duration_ms, place)
), fenced AS MATERIALIZED (
    SELECT lease.*, coalesce($11::timestamptz, now()) AS settled_at
    FROM penstock.lease
    WHERE token = $1
    FOR UPDATE
), closed AS (
    DELETE FROM penstock.lease USING fenced WHERE lease.token = fenced.token AND $2
), held_item AS MATERIALIZED (
    SELECT u.id, u.attempt, u.forgiven
    FROM fenced
    CROSS JOIN LATERAL unnest(fenced.item_ids, fenced.attempts, fenced.forgiven)
        AS u (id, attempt, forgiven)
), shrunk AS (
    UPDATE penstock.lease
    SET (item_ids, attempts, forgiven) = (
        SELECT array_agg(id), array_agg(attempt), array_agg(forgiven)
        FROM held_item
        WHERE id NOT IN (SELECT id FROM listed)
    )
    FROM fenced
    WHERE lease.token = fenced.token AND NOT $2
), ended AS MATERIALIZED (
    SELECT e.id, h.attempt + 1 AS attempt, h.forgiven, e.duration_ms,
        x.outcome, x.reason, x.result, x.due_at,
        f.token, f.lane_id, f.claimed_at, f.settled_at,
        -- Not before it is due: it may have been claimed early.
        CASE WHEN x.again_in IS NOT NULL
            THEN greatest(f.settled_at + make_interval(secs => x.again_in), x.due_at) END AS retry_at
    FROM fenced AS f
    CROSS JOIN listed AS e
    JOIN held_item AS h USING (id)
    JOIN unnest($6::text[], $7::float8[], $8::text[], $9::jsonb[], $10::timestamptz[])
        WITH ORDINALITY AS x (outcome, again_in, reason, result, due_at, place) USING (place)
), recorded AS (
    INSERT INTO penstock.attempt
        (item_id, token, claimed_at, settled_at, retry_at, lane_id, duration_ms, attempt, outcome,
         reason, result)
    SELECT id, token, claimed_at, settled_at, retry_at, lane_id, duration_ms, attempt, outcome,
        reason, result
    FROM ended
    WHERE outcome <> 'returned'
), again AS (
    INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
    SELECT coalesce(retry_at, due_at), id, lane_id, attempt - (outcome = 'returned')::integer,
        forgiven + (outcome = 'snooze')::integer
    FROM ended
    WHERE outcome IN ('retry', 'snooze', 'returned')
), held AS (
    INSERT INTO penstock.held (id, held_at, lane_id, attempt, forgiven, reason)
    SELECT id, settled_at, lane_id, attempt, forgiven, reason FROM ended WHERE outcome = 'hold'
), died AS (
    INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
    SELECT id, settled_at, lane_id, attempt, forgiven, reason FROM ended WHERE outcome = 'dead'
)
-- The items that an earlier settle of the same lease has written, if its answer was lost.
SELECT CASE
    WHEN (SELECT count(*) FROM ended) = (SELECT count(*) FROM listed) THEN '{}'
    ELSE ARRAY(SELECT id FROM listed EXCEPT SELECT id FROM held_item)
    END::bigint[] AS repeated,
    CASE WHEN $12 THEN pg_notify('penstock', lane_id::text)::text END
FROM fenced;
