-- Overwrite the given fields of a lane's policy and wake the workers, which then read it again; the
-- caller writes the audit. Rate slots assigned under the old rate or interval must not delay the
-- new one: the next slot is at most one after those that workers may already have (slots_ahead).
CREATE OR REPLACE FUNCTION penstock.set_lane(
    lane_name text, changes jsonb, slots_ahead interval DEFAULT '200 milliseconds'
) RETURNS SETOF penstock.lane
LANGUAGE sql ROWS 1 AS $$
    WITH given AS (
        SELECT (jsonb_populate_record(lane, changes)).* FROM penstock.lane WHERE name = lane_name
    ), woken AS (
        SELECT pg_notify('penstock', 'policy') FROM given
    ), repaced AS (
        UPDATE penstock.lane_pacing AS pacing
        SET next_slot_at = least(
                pacing.next_slot_at, now() + slots_ahead + make_interval(secs => 1 / given.rate)),
            next_cycle_at = least(pacing.next_cycle_at, now() + given.dispatch_interval)
        FROM given
        WHERE pacing.lane_id = given.lane_id
    )
    UPDATE penstock.lane
    SET enabled = given.enabled,
        batch_size = given.batch_size,
        dispatch_interval = given.dispatch_interval,
        rate = given.rate,
        burst = given.burst,
        jitter_window = given.jitter_window,
        pre_start_buffer = given.pre_start_buffer,
        max_attempts = given.max_attempts,
        lease = given.lease,
        concurrency = given.concurrency,
        backoff_base = given.backoff_base,
        backoff_multiplier = given.backoff_multiplier,
        backoff_cap = given.backoff_cap,
        backoff_jitter = given.backoff_jitter,
        backoff_first_exponent = given.backoff_first_exponent,
        ordering = given.ordering,
        on_dead_head = given.on_dead_head,
        on_lost = given.on_lost,
        error_detail = given.error_detail,
        retention = given.retention,
        payload_bytes_max = given.payload_bytes_max,
        slot_pool = given.slot_pool,
        version = lane.version + 1
    FROM given, woken
    WHERE lane.lane_id = given.lane_id
    RETURNING lane.*
$$;
