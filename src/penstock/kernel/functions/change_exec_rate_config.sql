-- Apply an UPDATE of the view exec_rate_config to the lane, as any other change of a policy.
-- `updated_at` is derived, and is ignored here.
CREATE OR REPLACE FUNCTION penstock.change_exec_rate_config() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    changes jsonb;
BEGIN
    IF (NEW.item_type, NEW.created_at) IS DISTINCT FROM (OLD.item_type, OLD.created_at) THEN
        RAISE EXCEPTION 'item_type and created_at cannot be changed'
            USING ERRCODE = 'feature_not_supported';
    END IF;
    IF NEW.enabled NOT IN (0, 1) THEN
        RAISE EXCEPTION 'enabled must be 0 or 1' USING ERRCODE = 'check_violation';
    END IF;
    SELECT jsonb_object_agg(field, value) INTO changes
    FROM (
        VALUES
            ('enabled', to_jsonb(NEW.enabled = 1), to_jsonb(OLD.enabled = 1)),
            ('batch_size', to_jsonb(NEW.batch_size), to_jsonb(OLD.batch_size)),
            ('dispatch_interval', to_jsonb(NEW.dispatch_interval_secs || ' seconds'),
                to_jsonb(OLD.dispatch_interval_secs || ' seconds')),
            ('jitter_window', to_jsonb(NEW.jitter_window_ms || ' milliseconds'),
                to_jsonb(OLD.jitter_window_ms || ' milliseconds')),
            ('pre_start_buffer', to_jsonb(NEW.pre_start_buffer_mins || ' minutes'),
                to_jsonb(OLD.pre_start_buffer_mins || ' minutes')),
            ('max_attempts', to_jsonb(NEW.max_dispatch_retries),
                to_jsonb(OLD.max_dispatch_retries)),
            ('lease', to_jsonb(NEW.stale_claim_threshold_mins || ' minutes'),
                to_jsonb(OLD.stale_claim_threshold_mins || ' minutes'))
    ) AS given (field, value, old_value)
    WHERE value IS DISTINCT FROM old_value;
    IF changes IS NULL THEN
        RETURN NEW;
    END IF;

    PERFORM penstock.set_lane(lane.name, changes)
    FROM penstock.lane
    WHERE upper(lane.name) = OLD.item_type;
    RETURN NEW;
END $$;
