-- How many order keys of a lane have followers behind a dead head, and how many behind a held one,
-- with one head of each; $2 as in blocked_keys.
SELECT head_state, count(*) AS order_keys, min(head_id) AS head_id
FROM penstock.blocked_keys($1, $2)
GROUP BY head_state
ORDER BY head_state;
