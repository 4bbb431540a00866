-- Every due instant that an item has had: the one in ready is among them. NULLs stay in: with a
-- condition here, the planner would read the whole history instead of looking up one item.
CREATE OR REPLACE VIEW penstock.due_instant AS
SELECT id AS item_id, due_at FROM penstock.item
UNION ALL
SELECT item_id, retry_at FROM penstock.attempt
UNION ALL
SELECT item_id, due_at FROM penstock.moved;
