-- Add an item type, with its lane if that does not exist, and return the lane's name. A new lane has the
-- policy of PAYMENT; workers find it within seconds, and execute its items with the engine of its row.
-- Violates the primary key for an item type that exists.
CREATE OR REPLACE FUNCTION penstock.add_payment_item_type(
    added text, exec_workflow_type text, exec_task_queue text
) RETURNS text
LANGUAGE sql AS $$
    INSERT INTO penstock.payment_item_type (item_type, lane, exec_workflow_type, exec_task_queue)
    VALUES (
        added, lower(added), add_payment_item_type.exec_workflow_type,
        add_payment_item_type.exec_task_queue);
    WITH made AS (
        INSERT INTO penstock.lane (name, batch_size, dispatch_interval, jitter_window, lease)
        VALUES (lower(added), 500, '5 seconds', '4 seconds', '2 minutes')
        ON CONFLICT DO NOTHING
        RETURNING lane_id, name
    ), paced AS (
        INSERT INTO penstock.lane_pacing (lane_id) SELECT lane_id FROM made
    )
    INSERT INTO penstock.audit (audited_at, who, action, subject)
    SELECT now(), 'sql:' || session_user, 'lane.created', name FROM made;
    SELECT lower(added);
$$;
