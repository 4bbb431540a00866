-- Apply an INSERT, an UPDATE or a DELETE of the view exec_rate_config. The policy is changed as any other;
-- what an INSERT leaves out has the defaults of PAYMENT. The lane of a new item type has its name in lower
-- case; one that exists keeps what is not given. `updated_at` is derived, and is ignored here.
-- Raises what check_exec_rate_config does for an impossible value.
CREATE OR REPLACE FUNCTION penstock.change_exec_rate_config() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    lane_name text;
    changes jsonb;
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'an item type is not deleted; set enabled = 0'
            USING ERRCODE = 'feature_not_supported';
    END IF;
    PERFORM penstock.check_exec_rate_config(to_jsonb(NEW), is_new => TG_OP = 'INSERT');
    IF TG_OP = 'INSERT' THEN
        IF EXISTS (SELECT FROM penstock.payment_item_type WHERE item_type = NEW.item_type) THEN
            RAISE EXCEPTION 'exec_rate_config.item_type % exists', quote_literal(NEW.item_type)
                USING ERRCODE = 'unique_violation', HINT = 'Change it with UPDATE.';
        END IF;
        lane_name := penstock.add_payment_item_type(
            NEW.item_type,
            coalesce(NEW.exec_workflow_type, 'PaymentExecWorkflow'),
            coalesce(NEW.exec_task_queue, 'payment-exec-task-queue'));
    ELSE
        IF (NEW.item_type, NEW.created_at) IS DISTINCT FROM (OLD.item_type, OLD.created_at) THEN
            RAISE EXCEPTION 'exec_rate_config.item_type and created_at of % cannot be changed',
                quote_literal(OLD.item_type)
                USING ERRCODE = 'feature_not_supported',
                    HINT = 'INSERT another item type, and set enabled = 0 for this one.';
        END IF;
        SELECT lane INTO lane_name
        FROM penstock.payment_item_type WHERE item_type = OLD.item_type;
        UPDATE penstock.payment_item_type
        SET exec_workflow_type = NEW.exec_workflow_type, exec_task_queue = NEW.exec_task_queue,
            updated_at = now()
        WHERE item_type = OLD.item_type
            AND (exec_workflow_type, exec_task_queue)
                IS DISTINCT FROM (NEW.exec_workflow_type, NEW.exec_task_queue);
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
    IF changes IS NOT NULL THEN
        PERFORM penstock.set_lane(lane_name, changes);
    END IF;
    RETURN NEW;
END $$;
