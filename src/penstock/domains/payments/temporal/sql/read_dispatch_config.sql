-- Read how an item type is dispatched. A lane with a rate has no jitter: its starts are spaced already.
SELECT t.item_type, t.lane, lane.enabled AND t.engine = 'temporal_schedule' AS is_enabled,
    lane.batch_size, extract(epoch FROM lane.dispatch_interval)::float8 AS dispatch_interval_secs,
    CASE WHEN lane.rate IS NULL
        THEN round(extract(epoch FROM lane.jitter_window) * 1000) ELSE 0
    END::integer AS jitter_window_ms,
    t.exec_workflow_type, t.exec_task_queue
FROM penstock.payment_item_type AS t
JOIN penstock.lane ON lane.name = t.lane
WHERE t.item_type = $1;
