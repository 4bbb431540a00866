-- Promote keys whose head ended while a producer had locked the key to park an item.
WITH found AS MATERIALIZED (
    SELECT lane_id, order_key FROM penstock.vacated_key
    WHERE $2::integer IS NULL OR lane_id = $2
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM penstock.vacated_key USING found
    WHERE vacated_key.lane_id = found.lane_id AND vacated_key.order_key = found.order_key
    RETURNING vacated_key.lane_id, vacated_key.order_key
)
SELECT lane_id, array_agg(order_key) AS order_keys FROM gone GROUP BY lane_id;
