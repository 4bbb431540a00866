-- Assign slots to events, by the function that callers of any language use.
-- Values that the caller knows are not returned, because decoding them takes a tenth of the time:
-- NULL as outcome means assigned, and only a slot that was there before has pool and requested
-- time.
SELECT nullif(given.outcome, 'assigned') AS outcome,
    CASE WHEN given.outcome <> 'assigned' THEN (
        SELECT name FROM penstock.slot_pool WHERE slot_pool.pool_id = given.pool_id)
    END AS pool,
    CASE WHEN given.outcome <> 'assigned' THEN given.requested_at END AS requested_at,
    given.scheduled_at, given.window_at, given.position, given.config_id, given.created_at
FROM penstock.assign_slots($1, $2::text[], $3::timestamptz[], $4) AS given
ORDER BY given.index;
