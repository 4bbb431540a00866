-- Change fields of a lane's policy for all workers: lock the lane, which waits for running claims,
-- check and write the change and its audit, and wake the workers, which then read the policy again.
-- Fields that are not given keep their values. Rate slots assigned under the old rate or interval
-- must not delay the new one: the next slot is at most one after those that workers may already
-- have (slots_ahead).
-- Raises PS404 for an unknown lane, PS400 for an unknown field, PS403 for a field that a domain
-- other than `owner` guards, PS409 for another ordering while the lane has unfinished items, and
-- violates the table's CHECKs for a value out of range.
CREATE OR REPLACE FUNCTION penstock.set_lane(
    lane_name text,
    changes jsonb,
    slots_ahead interval DEFAULT '200 milliseconds',
    who text DEFAULT 'sql:' || session_user,
    owner text DEFAULT NULL
) RETURNS SETOF penstock.lane
LANGUAGE plpgsql ROWS 1 AS $$
DECLARE
    fields text[] := ARRAY(SELECT jsonb_object_keys(changes));
    earlier penstock.lane;
    given penstock.lane;
    later penstock.lane;
    unknown text;
BEGIN
    SELECT * INTO earlier FROM penstock.lane WHERE name = lane_name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown lane %', quote_nullable(lane_name) USING ERRCODE = 'PS404';
    END IF;
    SELECT field INTO unknown
    FROM unnest(fields) AS field
    WHERE NOT to_jsonb(earlier) - '{lane_id,name,owner,guards,version}'::text[] ? field;
    IF FOUND THEN
        RAISE EXCEPTION '% is not part of a lane''s policy', quote_literal(unknown)
            USING ERRCODE = 'PS400';
    END IF;

    given := jsonb_populate_record(earlier, changes);
    PERFORM penstock.check_guard(earlier, 'set:' || field, set_lane.owner)
    FROM unnest(fields) AS field
    WHERE to_jsonb(given) -> field IS DISTINCT FROM to_jsonb(earlier) -> field;
    IF given.ordering IS DISTINCT FROM earlier.ordering THEN
        PERFORM penstock.reset_order(earlier);
    END IF;

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
        concurrency_total = given.concurrency_total,
        key_limits = given.key_limits,
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
    WHERE lane.lane_id = given.lane_id
    RETURNING lane.* INTO later;
    UPDATE penstock.lane_pacing AS pacing
    SET next_slot_at = least(
            pacing.next_slot_at, now() + slots_ahead + make_interval(secs => 1 / given.rate)),
        next_cycle_at = least(pacing.next_cycle_at, now() + given.dispatch_interval)
    WHERE pacing.lane_id = given.lane_id;
    INSERT INTO penstock.audit (audited_at, who, action, subject, before, after)
    VALUES (now(), set_lane.who, 'lane.changed', later.name,
        penstock.policy_values(earlier, fields), penstock.policy_values(later, fields));
    PERFORM pg_notify('penstock', 'policy');
    RETURN NEXT later;
END $$;
