-- When each finished item ended. Such an item never becomes unfinished again.
CREATE OR REPLACE VIEW penstock.ending AS
SELECT item_id, settled_at AS ended_at FROM penstock.attempt WHERE outcome = 'done'
UNION ALL
SELECT id, cancelled_at FROM penstock.cancelled;
