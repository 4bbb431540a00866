-- Policies of lanes, under the table name of the payments dispatcher that Penstock replaces. The lane
-- `payment` is the item type PAYMENT. An UPDATE changes the lane for all workers, and is audited.
CREATE OR REPLACE VIEW penstock.exec_rate_config AS
SELECT upper(lane.name) AS item_type, lane.enabled::integer AS enabled, lane.batch_size,
    trim_scale(extract(epoch FROM lane.dispatch_interval)) AS dispatch_interval_secs,
    trim_scale(extract(epoch FROM lane.jitter_window) * 1000) AS jitter_window_ms,
    trim_scale(extract(epoch FROM lane.pre_start_buffer) / 60) AS pre_start_buffer_mins,
    lane.max_attempts AS max_dispatch_retries,
    trim_scale(extract(epoch FROM lane.lease) / 60) AS stale_claim_threshold_mins,
    audited.created_at, audited.updated_at
FROM penstock.lane
CROSS JOIN LATERAL (
    SELECT min(audited_at) AS created_at, max(audited_at) AS updated_at
    FROM penstock.audit
    WHERE subject = lane.name AND action IN ('lane.created', 'lane.changed')
) AS audited;
