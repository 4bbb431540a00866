-- What limits a lane now: its pacing, how much its workers hold, which workers run it ($2 is how
-- long ago a live one was seen at most), and when its next item is due.
SELECT moment.now, greatest(pacing.next_slot_at, moment.now) AS next_slot_at,
    greatest(pacing.next_cycle_at, moment.now) AS next_cycle_at,
    (SELECT coalesce(sum(cardinality(item_ids)), 0) FROM penstock.lease
        WHERE lease.lane_id = lane.lane_id) AS leased,
    (SELECT jsonb_object_agg(worker, items) FROM (
        SELECT worker, sum(cardinality(item_ids)) AS items FROM penstock.lease
        WHERE lease.lane_id = lane.lane_id
        GROUP BY worker
    ) AS holder) AS leased_by,
    (SELECT count(*) FROM penstock.worker
        WHERE lane.name = ANY (lanes) AND seen_at > moment.now - $2::interval) AS workers,
    (SELECT max(seen_at) FROM penstock.worker WHERE lane.name = ANY (lanes)) AS worker_seen_at,
    (SELECT due_at FROM penstock.ready WHERE ready.lane_id = lane.lane_id
        ORDER BY due_at, id
        LIMIT 1) AS next_due_at
FROM penstock.lane
JOIN penstock.lane_pacing AS pacing USING (lane_id)
CROSS JOIN (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) AS moment
WHERE lane.lane_id = $1;
