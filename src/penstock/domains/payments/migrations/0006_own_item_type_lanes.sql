-- Lanes of item types were made without owner and guards: a generic cancel left a payment scheduled for
-- ever, and an item that others enqueued executed a payment at once. The lanes that were made with their
-- item type, in one transaction and therefore at one instant, get what new ones have. A lane that existed
-- before its item type belongs to an application, and stays as it is.
WITH owned AS (
    UPDATE penstock.lane
    SET owner = 'payments',
        guards = jsonb_build_object(
            'enqueue', 'use POST /payments, penstock payment schedule, or for items of your own'
                ' penstock.save_context_and_enqueue',
            'cancel', 'use penstock payment cancel',
            'reschedule', 'use penstock payment reschedule',
            'resolve', 'use penstock payment cancel, or release the item',
            'set:ordering', 'the domain relies on it',
            'set:on_dead_head', 'the domain relies on it',
            'set:on_lost', 'the domain relies on it')
    FROM penstock.payment_item_type AS t
    JOIN penstock.audit AS made
        ON made.subject = t.lane AND made.action = 'lane.created' AND made.audited_at = t.created_at
    WHERE lane.name = t.lane AND lane.owner IS NULL
    RETURNING lane.name, lane.owner, lane.guards
)
INSERT INTO penstock.audit (audited_at, who, action, subject, before, after)
SELECT now(), 'migration', 'lane.changed', name,
    jsonb_build_object('owner', NULL, 'guards', '{}'::jsonb),
    jsonb_build_object('owner', owner, 'guards', guards)
FROM owned;
