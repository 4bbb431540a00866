-- The history of one item; late results are listed beside the attempts that replaced them.
SELECT attempt, outcome, claimed_at, settled_at, retry_at, duration_ms, reason, result, token
FROM penstock.attempt
WHERE item_id = $1
UNION ALL
SELECT attempt, 'late: ' || outcome, NULL, settled_at, NULL, NULL, reason, result, token
FROM penstock.late_result
WHERE item_id = $1
ORDER BY settled_at, attempt;
