-- The history of one item; late results are listed beside the attempts that replaced them. An
-- operator who resolves an item claims nothing, and takes no time.
SELECT attempt, outcome, CASE WHEN resolved_by IS NULL THEN claimed_at END AS claimed_at, settled_at,
    retry_at, CASE WHEN resolved_by IS NULL THEN duration_ms END AS duration_ms, reason, result,
    token, resolved_by
FROM penstock.attempt
WHERE item_id = $1
UNION ALL
SELECT attempt, 'late: ' || outcome, NULL, settled_at, NULL, NULL, reason, result, token, NULL
FROM penstock.late_result
WHERE item_id = $1
ORDER BY settled_at, attempt;
