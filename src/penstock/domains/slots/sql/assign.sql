-- Give events their slots; the function is the same for callers of any language.
-- What the caller knows already is not sent back, since decoding it would be a tenth of all: no outcome
-- means assigned, and only a conflict names the pool and the time of the slot that there is.
SELECT nullif(given.outcome, 'assigned') AS outcome,
    CASE WHEN given.outcome = 'conflict' THEN (
        SELECT name FROM penstock.slot_pool WHERE slot_pool.pool_id = given.pool_id)
    END AS pool,
    CASE WHEN given.outcome = 'conflict' THEN given.requested_at END AS requested_at,
    given.scheduled_at, given.window_at, given.position, given.config_id, given.created_at
FROM penstock.assign_slots($1, $2::text[], $3::timestamptz[], $4) AS given
ORDER BY given.index;
