-- The conservation of items: accepted = ready + parked + leased + held + done + dead + cancelled.
-- One statement is one snapshot, so it holds at any moment under concurrent writes.
SELECT
    (SELECT count(*) FROM penstock.item WHERE $1::integer IS NULL OR lane_id = $1) AS accepted,
    (SELECT count(*) FROM penstock.ready WHERE $1 IS NULL OR lane_id = $1) AS ready,
    (SELECT count(*) FROM penstock.parked WHERE $1 IS NULL OR lane_id = $1) AS parked,
    (SELECT coalesce(sum(cardinality(item_ids)), 0)
        FROM penstock.lease WHERE $1 IS NULL OR lane_id = $1) AS leased,
    (SELECT count(*) FROM penstock.held WHERE $1 IS NULL OR lane_id = $1) AS held,
    (SELECT count(*) FROM penstock.attempt
        WHERE outcome = 'done' AND ($1 IS NULL OR lane_id = $1)) AS done,
    (SELECT count(*) FROM penstock.dead WHERE $1 IS NULL OR lane_id = $1) AS dead,
    (SELECT count(*) FROM penstock.cancelled WHERE $1 IS NULL OR lane_id = $1) AS cancelled;
