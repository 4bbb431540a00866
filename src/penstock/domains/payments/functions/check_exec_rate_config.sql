-- Refuse values that the view exec_rate_config cannot have, with its own column, the value and what is
-- allowed: the constraints of the tables behind it have other names and units. What a new row leaves out
-- has a default; a known one has no NULL.
CREATE OR REPLACE FUNCTION penstock.check_exec_rate_config(given jsonb, is_new boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    rule record;
BEGIN
    FOR rule IN
        SELECT r.field, r.allowed, r.hint, given ->> r.field AS value,
            CASE
                WHEN given ->> r.field IS NULL THEN is_new AND r.field <> 'item_type'
                WHEN r.low IS NOT NULL THEN (given ->> r.field)::numeric BETWEEN r.low AND r.high
                ELSE given ->> r.field ~ r.pattern
            END AS is_possible
        FROM (
            VALUES
                ('item_type', NULL, NULL, '^[A-Z][A-Z0-9_]{0,62}$',
                    'a word of up to 63 capital letters, digits and _',
                    'The lane of an item type has its name in lower case.'),
                ('enabled', 0, 1, NULL, '0 or 1', 'With 0, items wait until it is 1 again.'),
                ('batch_size', 1, 10000, NULL, 'a number from 1 to 10000',
                    'It is the most items of one cycle.'),
                ('dispatch_interval_secs', 0, 86400, NULL, 'from 0 to 86400 seconds',
                    'Fractions are allowed.'),
                ('jitter_window_ms', 0, 3600000, NULL, 'from 0 to 3600000 milliseconds',
                    'Fractions are allowed.'),
                ('pre_start_buffer_mins', 0, 60, NULL, 'from 0 to 60 minutes',
                    'Fractions are allowed.'),
                ('max_dispatch_retries', 1, 1000, NULL, 'a number from 1 to 1000',
                    'It counts all attempts, the first one included.'),
                ('stale_claim_threshold_mins', 1 / 60.0, 1440, NULL, 'from 1/60 to 1440 minutes',
                    'It is the lease of the lane. Fractions are allowed, such as 0.5.'),
                ('exec_workflow_type', NULL, NULL, '^.{1,255}$', 'a text of 1 to 255 characters',
                    'It is the name of a workflow on Temporal.'),
                ('exec_task_queue', NULL, NULL, '^.{1,255}$', 'a text of 1 to 255 characters',
                    'It is the name of a task queue on Temporal.')
        ) AS r (field, low, high, pattern, allowed, hint)
    LOOP
        IF NOT rule.is_possible THEN
            RAISE EXCEPTION 'exec_rate_config.% must be %, not %',
                rule.field, rule.allowed, coalesce(left(rule.value, 100), 'NULL')
                USING ERRCODE = CASE
                        WHEN rule.value IS NULL THEN 'not_null_violation'
                        ELSE 'check_violation'
                    END,
                    HINT = rule.hint, TABLE = 'exec_rate_config', COLUMN = rule.field;
        END IF;
    END LOOP;
END $$;
