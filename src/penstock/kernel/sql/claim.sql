-- Delete due items of one lane from ready and insert one lease for all of them.
-- The lane's row is locked first, so that a pause is exact, policy is never stale, and the rate is
-- decided here over all workers, as is the lane's total concurrency. A rate-limited lane assigns
-- slots up to $6 ahead; the worker starts each item at its slot (start_in seconds from now).
-- ($2, $3) is the worker's cursor: a hint that skips the dead head of the index. $10: whether to
-- wait for the lane's dispatch interval, which the caller may keep by itself.
-- MATERIALIZED fences the LIMIT: inlined, the planner may repeat it and claim too many. The planner
-- cannot know that LIMIT either and would guess a tenth of the table; rows that are locked cannot
-- move, so they are deleted by ctid, and bodies are looked up one by one (LATERAL with LIMIT).
-- At least one row is returned; wait_seconds is the time until the next claim can find items.
WITH policy AS MATERIALIZED (
    SELECT lane.enabled, lane.batch_size, lane.dispatch_interval, lane.lease,
        lane.on_lost = 'hold' AS marks_starts,
        -- With a rate, items claimed early would all start at their due instant, above the rate.
        CASE WHEN lane.rate IS NULL THEN lane.pre_start_buffer ELSE interval '0' END
            AS pre_start_buffer,
        1 / lane.rate AS slot_seconds, lane.burst, lane.concurrency_total,
        pacing.next_slot_at, pacing.next_cycle_at
    FROM penstock.lane JOIN penstock.lane_pacing AS pacing USING (lane_id)
    WHERE lane_id = $1
    FOR NO KEY UPDATE
), locked AS MATERIALIZED (
    -- Read the clock, and count what workers hold, after taking the lock.
    SELECT policy.*, clock_timestamp() AS locked_at,
        CASE WHEN concurrency_total IS NOT NULL
            THEN greatest(0, concurrency_total - penstock.items_in_flight($1)) END AS places
    FROM policy
), moment AS MATERIALIZED (
    SELECT locked.*, coalesce($7::timestamptz, locked_at) AS at FROM locked
), opening AS MATERIALIZED (
    -- Slots of the past are used up to the burst. An item may start until `burst` slots after its
    -- own, at least $8; since the items arrive at the worker after $9, the first slot must not be
    -- over by then.
    SELECT moment.*, greatest(
        next_slot_at,
        at - make_interval(secs => slot_seconds * (burst - 1)),
        at + $9::interval
            - greatest(make_interval(secs => slot_seconds * burst), $8::interval)
    ) AS first_slot_at
    FROM moment
), allowance AS MATERIALIZED (
    SELECT opening.*, CASE
        WHEN NOT enabled OR ($10 AND next_cycle_at > at) THEN 0
        WHEN slot_seconds IS NULL THEN least($4, batch_size, places)
        ELSE greatest(0, least($4, batch_size, places, 1 + floor(
            extract(epoch FROM at + $6::interval - first_slot_at)::float8 / slot_seconds)))
        END::integer AS items_max
    FROM opening
), picked AS MATERIALIZED (
    SELECT ctid
    FROM penstock.ready
    WHERE lane_id = $1
        AND (due_at, id) > ($2, $3)
        AND due_at <= (SELECT at + pre_start_buffer FROM allowance)
    ORDER BY due_at, id
    LIMIT (SELECT items_max FROM allowance)
    FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM penstock.ready
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM picked))
    RETURNING ready.due_at, ready.id, ready.attempt, ready.forgiven
), place AS MATERIALIZED (
    SELECT taken.*, row_number() OVER (ORDER BY due_at, id) AS number FROM taken
), leased AS (
    INSERT INTO penstock.lease
        (lane_id, worker, claimed_at, expires_at, item_ids, attempts, forgiven, started_ids)
    SELECT $1, $5, at, at + lease, array_agg(id), array_agg(attempt), array_agg(forgiven),
        CASE WHEN marks_starts THEN '{}'::bigint[] END
    FROM taken, allowance
    GROUP BY at, lease, marks_starts
    RETURNING token, cardinality(item_ids) AS items_taken
), passed AS (
    UPDATE penstock.lane_pacing AS pacing
    SET next_slot_at = coalesce(
            first_slot_at + make_interval(secs => slot_seconds * items_taken), pacing.next_slot_at),
        next_cycle_at = at + dispatch_interval
    FROM leased, allowance
    WHERE pacing.lane_id = $1 AND (slot_seconds IS NOT NULL OR dispatch_interval > interval '0')
), ask AS (
    -- A full claim may be repeated immediately; otherwise find the next item after the due ones. In
    -- a lane without a free place, a settle wakes the workers.
    SELECT allowance.*, coalesce(items_taken, 0) AS items_taken,
        coalesce(items_taken = items_max AND items_taken IS DISTINCT FROM places, false) AS is_more,
        coalesce(places = coalesce(items_taken, 0), false) AS is_full,
        CASE WHEN items_taken IS NULL THEN $2 ELSE at + pre_start_buffer END AS behind_at,
        CASE WHEN items_taken IS NULL THEN $3 ELSE 9223372036854775807 END AS behind_id
    FROM allowance LEFT JOIN leased ON true
), wait AS (
    SELECT 0::float8 AS seconds FROM ask WHERE is_more
    UNION ALL
    SELECT extract(epoch FROM greatest(
        due.due_at - pre_start_buffer,
        CASE WHEN items_taken = 0 THEN next_cycle_at ELSE at + dispatch_interval END,
        first_slot_at + make_interval(secs => slot_seconds * items_taken) - $6::interval
    ) - at)::float8
    FROM ask, LATERAL (
        SELECT due_at FROM penstock.ready
        WHERE lane_id = $1 AND (due_at, id) > (behind_at, behind_id)
            AND enabled AND NOT is_more AND NOT is_full
        ORDER BY due_at, id
        LIMIT 1
    ) AS due
)
SELECT
    -- Columns of the whole lease are in the first row only: decoding them 500 times is slow.
    CASE WHEN place.number = 1 THEN leased.token END AS token,
    CASE WHEN place.number = 1 THEN allowance.at END AS claimed_at,
    CASE WHEN place.number = 1 THEN allowance.marks_starts END AS marks_starts,
    CASE WHEN coalesce(place.number, 1) = 1 THEN wait.seconds END AS wait_seconds,
    -- How long the statement took without the wait for the lock; and the server's clock, for the
    -- worker to know it.
    CASE WHEN coalesce(place.number, 1) = 1
        THEN extract(epoch FROM clock_timestamp() - allowance.locked_at)::float8
        END AS scan_seconds,
    CASE WHEN coalesce(place.number, 1) = 1
        THEN extract(epoch FROM statement_timestamp())::float8 END AS received_at,
    CASE WHEN coalesce(place.number, 1) = 1
        THEN extract(epoch FROM clock_timestamp())::float8 END AS answered_at,
    extract(epoch FROM coalesce(
        allowance.first_slot_at
            + make_interval(secs => allowance.slot_seconds * (place.number - 1)),
        place.due_at
    ) - allowance.at)::float8 AS start_in,
    place.id, place.due_at, place.attempt, place.forgiven, item.key, item.order_key,
    item.not_after, item.payload, item.limit_keys
FROM allowance
LEFT JOIN leased ON true
LEFT JOIN place ON true
LEFT JOIN LATERAL (
    SELECT key, order_key, not_after, payload, limit_keys
    FROM penstock.item
    WHERE id = place.id
    LIMIT 1
) AS item ON true
LEFT JOIN wait ON true
ORDER BY place.number;
