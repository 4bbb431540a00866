-- Instructions of rail $1 that may have been paid, and those that a worker of lane $2 holds, which were
-- claimed before the promises of its row count; without a row, all.
WITH rail AS MATERIALIZED (
    SELECT coalesce(
        (SELECT promises_since FROM penstock.outbox_rail WHERE rail_type = $1), 'infinity') AS since
)
SELECT (
        SELECT count(*) FROM penstock.outbox_unknown AS u, rail
        WHERE u.rail_type = $1 AND u.claimed_at < rail.since
    ) AS unknown, (
        SELECT count(*)
        FROM rail, penstock.lease
        JOIN penstock.lane USING (lane_id)
        CROSS JOIN LATERAL unnest(lease.item_ids) AS leased (item_id)
        JOIN penstock.outbox_instruction AS instruction USING (item_id)
        WHERE lane.name = $2 AND instruction.rail_type = $1 AND lease.claimed_at < rail.since
    ) AS in_flight;
