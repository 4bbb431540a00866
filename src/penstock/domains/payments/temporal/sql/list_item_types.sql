-- List the item types with how they are dispatched.
SELECT t.item_type, t.lane, t.engine, lane.enabled AS is_enabled, t.exec_workflow_type,
    t.exec_task_queue, lane.dispatch_interval AS interval
FROM penstock.payment_item_type AS t
JOIN penstock.lane ON lane.name = t.lane
ORDER BY t.item_type;
