-- How the last attempt of each item ended. A snoozed attempt does not count.
SELECT DISTINCT ON (item_id) item_id, outcome, reason, settled_at, token
FROM penstock.attempt
WHERE item_id = ANY ($1::bigint[]) AND outcome <> 'snooze'
ORDER BY item_id, attempt DESC;
