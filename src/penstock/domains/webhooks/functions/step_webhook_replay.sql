-- Run the next part of a replay. Returns how long to wait before the next part, or NULL when the
-- replay has ended or must not continue. Dead deliveries are replayed; others get new deliveries.
CREATE OR REPLACE FUNCTION penstock.step_webhook_replay(
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
    -- Replays to one subscription run one at a time: what one sends is not missing for the next.
    PERFORM FROM penstock.webhook_subscription
    WHERE subscription_no = job.subscription_no
    FOR NO KEY UPDATE;
    IF job.rate IS NOT NULL THEN
        -- At most a second's worth at once, or one; unused rate is not saved up.
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
