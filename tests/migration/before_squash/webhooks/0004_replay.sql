-- Replays: events that were accepted long ago are sent again, to one subscription, by a job that goes
-- on where it stopped.

-- The first event at or after an instant, to within an hour: numbers grow with time, so that a search
-- by halves finds the place in an index that knows only numbers.
CREATE FUNCTION penstock.first_event_since(since timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
DECLARE
    low bigint := 0;  -- Whatever comes before it is too old.
    high bigint := (SELECT coalesce(max(event_no), 0) + 1 FROM penstock.webhook_event);
    middle bigint;
    is_old boolean;
BEGIN
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        SELECT accepted_at < since - interval '1 hour' INTO is_old
        FROM penstock.webhook_event
        WHERE event_no >= middle
        ORDER BY event_no
        LIMIT 1;
        IF is_old THEN
            low := middle + 1;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- Of the next events of a replay, those that it is about; `item_id` is the delivery that there is.
-- One row more than are wanted tells how far it has looked: its event_no, and nothing else.
CREATE FUNCTION penstock.replay_candidates(
    job penstock.webhook_replay, from_no bigint, scanned_max integer, wanted_max bigint
) RETURNS TABLE (event_no bigint, item_id bigint, is_wanted boolean)
LANGUAGE sql STABLE
SET enable_seqscan = off
AS $$
    WITH scanned AS MATERIALIZED (
        SELECT event.event_no, event.accepted_at, event.tenant, event.type, event.data
        FROM penstock.webhook_event AS event
        WHERE event.event_no >= from_no AND event.event_no < (job).end_event_no
        ORDER BY event.event_no
        LIMIT scanned_max
    ), fitting AS (
        SELECT scanned.event_no, latest.item_id
        FROM scanned
        CROSS JOIN penstock.webhook_subscription AS s
        LEFT JOIN LATERAL (
            SELECT delivery.item_id FROM penstock.webhook_delivery AS delivery
            WHERE delivery.event_no = scanned.event_no
                AND delivery.subscription_no = (job).subscription_no
            ORDER BY delivery.item_id DESC
            LIMIT 1
        ) AS latest ON true
        WHERE s.subscription_no = (job).subscription_no AND scanned.tenant = (job).tenant
            AND scanned.accepted_at >= (job).from_at AND scanned.accepted_at < (job).until_at
            AND ((job).event_types IS NULL
                OR penstock.webhook_patterns(scanned.type) && (job).event_types)
            AND CASE (job).which
                WHEN 'failed' THEN EXISTS (
                    SELECT FROM penstock.dead WHERE dead.id = latest.item_id)
                WHEN 'delivered' THEN EXISTS (
                    SELECT FROM penstock.attempt
                    WHERE attempt.item_id = latest.item_id AND outcome = 'done')
                ELSE (latest.item_id IS NULL OR (job).which = 'all')
                    AND penstock.webhook_patterns(scanned.type) && s.event_types
                    AND (s.filter_path IS NULL
                        OR penstock.webhook_is_wanted(scanned.data, s.filter_path::text))
            END
        ORDER BY scanned.event_no
        LIMIT wanted_max
    )
    SELECT event_no, item_id, true FROM fitting
    UNION ALL
    SELECT coalesce(
        CASE WHEN (SELECT count(*) FROM fitting) = wanted_max THEN (SELECT max(event_no) FROM fitting) END,
        (SELECT max(event_no) FROM scanned)), NULL, false
$$;

-- Send events to a subscription once more, or for the first time.
CREATE FUNCTION penstock.redeliver(
    events bigint[], to_subscription integer, for_replay bigint, at timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    order_keys text[];
    item_ids bigint[];
BEGIN
    IF cardinality(events) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(
        penstock.webhook_order_key(s.subscription_id, s.ordering_path, event.data) ORDER BY g.place)
    INTO order_keys
    FROM unnest(events) WITH ORDINALITY AS g (event_no, place)
    CROSS JOIN LATERAL (
        SELECT data FROM penstock.webhook_event WHERE event_no = g.event_no LIMIT 1
    ) AS event
    JOIN penstock.webhook_subscription AS s ON s.subscription_no = to_subscription;
    item_ids := penstock.enqueue_deliveries(
        events, array_fill(to_subscription, ARRAY[cardinality(events)]), order_keys, NULL,
        redeliver.at);
    INSERT INTO penstock.webhook_redelivery (event_no, item_id, subscription_no, replay_no)
    SELECT d.event_no, d.item_id, to_subscription, for_replay
    FROM unnest(events, item_ids) AS d (event_no, item_id);
END $$;

-- Do the next part of a replay; returns how long to wait before the next one, or NULL when it is over
-- or not to go on. Dead deliveries are revived; for all others there are new ones.
CREATE FUNCTION penstock.step_webhook_replay(
    job_no bigint, scanned_max integer, wanted_max integer, at timestamptz DEFAULT NULL
) RETURNS interval
LANGUAGE plpgsql AS $$
DECLARE
    job penstock.webhook_replay;
    now_at timestamptz := coalesce(step_webhook_replay.at, clock_timestamp());
    room bigint := wanted_max;
    events bigint[];
    dead_ids bigint[];
    last_no bigint;
    done bigint;
BEGIN
    SELECT * INTO job FROM penstock.webhook_replay WHERE replay_no = job_no FOR UPDATE;
    IF job.state IS DISTINCT FROM 'running' THEN
        RETURN NULL;
    END IF;
    -- Replays to one subscription take turns: what one of them sends is not missing for the next.
    PERFORM FROM penstock.webhook_subscription
    WHERE subscription_no = job.subscription_no
    FOR NO KEY UPDATE;
    IF job.rate IS NOT NULL THEN
        -- At most a second's worth at once, or one; what was not used is not saved up.
        job.next_due_at := greatest(
            job.next_due_at, now_at - greatest(interval '1 second', interval '1 second' / job.rate));
        room := least(room, floor(extract(epoch FROM now_at - job.next_due_at) * job.rate)::bigint);
        IF room < 1 THEN
            RETURN job.next_due_at + interval '1 second' / job.rate - now_at;
        END IF;
    END IF;

    SELECT array_agg(event_no ORDER BY event_no) FILTER (WHERE is_wanted),
        array_agg(item_id) FILTER (WHERE is_wanted), max(event_no) FILTER (WHERE NOT is_wanted)
    INTO events, dead_ids, last_no
    FROM penstock.replay_candidates(job, job.next_event_no, scanned_max, room);
    IF job.which = 'failed' THEN
        done := (SELECT count(*) FROM penstock.replay_dead(coalesce(dead_ids, '{}'), now_at));
    ELSE
        PERFORM penstock.redeliver(coalesce(events, '{}'), job.subscription_no, job_no, now_at);
        done := coalesce(cardinality(events), 0);
    END IF;

    UPDATE penstock.webhook_replay
    SET replayed = replayed + done,
        next_event_no = coalesce(last_no + 1, end_event_no),
        next_due_at = CASE
            WHEN rate IS NULL THEN next_due_at
            ELSE job.next_due_at + coalesce(cardinality(events), 0) * interval '1 second' / rate
        END,
        state = CASE WHEN last_no IS NULL THEN 'finished' ELSE state END,
        finished_at = CASE WHEN last_no IS NULL THEN now_at END
    WHERE replay_no = job_no;
    RETURN CASE WHEN last_no IS NOT NULL THEN interval '0' END;
END $$;
