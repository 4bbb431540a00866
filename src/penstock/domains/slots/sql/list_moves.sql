-- A page of moves in the order they were made.
SELECT move_id, reflow_id, event_id, moved_from, moved_to, slot_pool.name AS pool,
    slot_reflow.created_at AS moved_at
FROM penstock.slot_move
JOIN penstock.slot_reflow USING (reflow_id)
JOIN penstock.slot_pool USING (pool_id)
WHERE move_id > $1 AND ($2::bigint IS NULL OR reflow_id = $2)
ORDER BY move_id
LIMIT $3;
