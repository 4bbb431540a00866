-- Add an item type with its lane, and return the lane's name. A new lane has the policy and the guards of
-- PAYMENT, as lanes.py has them; workers find it within seconds, and execute its items with the engine of
-- its row. A lane that exists has to be one of payments: in any other, the items of an application would
-- be executed as payments. Raises PS403 for such a lane, and violates the primary key for an item type
-- that exists.
CREATE OR REPLACE FUNCTION penstock.add_payment_item_type(
    added text, exec_workflow_type text, exec_task_queue text
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    lane_name text := lower(added);
    known penstock.lane;
BEGIN
    INSERT INTO penstock.payment_item_type (item_type, lane, exec_workflow_type, exec_task_queue)
    VALUES (
        added, lane_name, add_payment_item_type.exec_workflow_type,
        add_payment_item_type.exec_task_queue);
    WITH made AS (
        INSERT INTO penstock.lane
            (name, owner, guards, batch_size, dispatch_interval, jitter_window, lease)
        VALUES (
            lane_name, 'payments',
            jsonb_build_object(
                'enqueue', 'use POST /payments, penstock payment schedule, or for items of your own'
                    ' penstock.save_context_and_enqueue',
                'cancel', 'use penstock payment cancel',
                'reschedule', 'use penstock payment reschedule',
                'resolve', 'use penstock payment cancel, or release the item',
                'set:ordering', 'the domain relies on it',
                'set:on_dead_head', 'the domain relies on it',
                'set:on_lost', 'the domain relies on it'),
            500, '5 seconds', '4 seconds', '2 minutes')
        ON CONFLICT DO NOTHING
        RETURNING lane_id, name
    ), paced AS (
        INSERT INTO penstock.lane_pacing (lane_id) SELECT lane_id FROM made
    )
    INSERT INTO penstock.audit (audited_at, who, action, subject)
    SELECT now(), 'sql:' || session_user, 'lane.created', name FROM made;

    SELECT * INTO known FROM penstock.lane WHERE name = lane_name;
    IF known.owner IS DISTINCT FROM 'payments' THEN
        RAISE EXCEPTION 'item type % needs the lane %, which belongs to %', quote_literal(added),
            quote_literal(lane_name),
            coalesce('the domain ' || quote_literal(known.owner), 'an application')
            USING ERRCODE = 'PS403', HINT = 'Choose another name for the item type.',
                DETAIL = jsonb_build_object(
                    'lane', lane_name, 'owner', known.owner, 'verb', 'another owner',
                    'pointer', 'choose another name for the item type')::text;
    END IF;
    RETURN lane_name;
END $$;
