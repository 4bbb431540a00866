-- How item types are dispatched, under the table name of the payments dispatcher that Penstock replaces:
-- one row for each item type, with the policy of its lane. An INSERT makes an item type and its lane; an
-- UPDATE changes the lane for all workers, and is audited. Minutes and seconds may be fractions.
CREATE OR REPLACE VIEW penstock.exec_rate_config AS
SELECT t.item_type, lane.enabled::integer AS enabled, lane.batch_size,
    trim_scale(extract(epoch FROM lane.dispatch_interval)) AS dispatch_interval_secs,
    trim_scale(extract(epoch FROM lane.jitter_window) * 1000) AS jitter_window_ms,
    trim_scale(extract(epoch FROM lane.pre_start_buffer) / 60) AS pre_start_buffer_mins,
    lane.max_attempts AS max_dispatch_retries,
    trim_scale(extract(epoch FROM lane.lease) / 60) AS stale_claim_threshold_mins,
    t.exec_workflow_type, t.exec_task_queue, t.created_at,
    greatest(t.updated_at, (
        SELECT max(audited_at) FROM penstock.audit
        WHERE subject = lane.name AND action = 'lane.changed'
    )) AS updated_at
FROM penstock.payment_item_type AS t
JOIN penstock.lane ON lane.name = t.lane;
