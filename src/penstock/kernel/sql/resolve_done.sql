-- End a held item as done, with an attempt of the operator $4 that records the reason and the
-- result. Its token is a new one, so that every lease the item has had is older.
WITH resolved AS (
    DELETE FROM penstock.held WHERE id = $1 RETURNING id, lane_id, attempt, reason
), recorded AS (
    INSERT INTO penstock.attempt
        (item_id, token, claimed_at, settled_at, lane_id, duration_ms, attempt, outcome, reason,
         result, resolved_by)
    SELECT id, nextval(pg_get_serial_sequence('penstock.lease', 'token')),
        coalesce($5::timestamptz, now()), coalesce($5::timestamptz, now()), lane_id, 0, attempt + 1,
        'done', $2, $3::jsonb, $4
    FROM resolved
)
SELECT resolved.lane_id, resolved.reason,
    CASE WHEN lane.ordering = 'per_key' THEN item.order_key END AS order_key
FROM resolved JOIN penstock.lane USING (lane_id) JOIN penstock.item ON item.id = resolved.id;
