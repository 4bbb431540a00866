-- Which tasks of the sweeper have something to do: one cheap statement instead of one each.
SELECT
    EXISTS (SELECT FROM penstock.lease WHERE expires_at <= coalesce($1::timestamptz, now()))
        AS has_expired_leases,
    EXISTS (SELECT FROM penstock.deadline WHERE not_after <= coalesce($1::timestamptz, now()))
        AS has_passed_deadlines,
    EXISTS (SELECT FROM penstock.vacated_key) AS has_vacated_keys,
    EXISTS (SELECT FROM penstock.replay WHERE finished_at IS NULL) AS has_replays,
    EXISTS (SELECT FROM penstock.worker
        WHERE seen_at < coalesce($1::timestamptz, now()) - $2::interval) AS has_lost_workers,
    EXISTS (SELECT FROM penstock.history_day
        WHERE look_at <= coalesce($1::timestamptz, now())) AS has_days_to_look_at,
    EXISTS (SELECT FROM penstock.history_day WHERE trimmed_lanes IS NOT NULL) AS has_days_to_trim,
    EXISTS (SELECT FROM penstock.lane CROSS JOIN LATERAL (
        SELECT FROM penstock.retained_item
        WHERE lane_id = lane.lane_id
            AND from_at <= coalesce($1::timestamptz, now()) - lane.retention
        LIMIT 1) AS found) AS has_retained_items,
    (SELECT last_value FROM penstock.item_id) < (
        (coalesce($1::timestamptz, now()) AT TIME ZONE 'UTC')::date - date '1970-01-01'
    )::bigint << 32 AS is_new_day;
