-- Count the dead items that a replay would retry; those past their deadline stay dead.
SELECT count(*)
FROM penstock.dead JOIN penstock.item USING (id)
WHERE dead.lane_id = $1
    AND ($2::text IS NULL OR dead.reason = $2)
    AND (item.not_after IS NULL OR item.not_after > coalesce($3::timestamptz, now()));
