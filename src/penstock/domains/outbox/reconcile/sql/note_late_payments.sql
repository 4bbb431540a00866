-- Keep as reports what workers have said after their lease: that they paid instructions which have
-- failed since. Others are ended by the reconciler or the next attempt, which read it by
-- themselves. An old one cannot be sent under another key either; $2 is how long they are looked
-- for.
INSERT INTO penstock.outbox_result
    (outbox_id, status, rail_code, rail_reference, occurred_at, received_at, due_at)
SELECT i.outbox_id, 'paid', l.result ->> 'rail_code', l.result ->> 'rail_reference', l.settled_at,
    coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now())
FROM penstock.dead
JOIN penstock.late_result AS l ON l.item_id = dead.id AND l.outcome = 'done'
JOIN penstock.outbox_instruction AS i ON i.item_id = dead.id
WHERE dead.lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
    AND dead.died_at > coalesce($1::timestamptz, now()) - $2::interval
ON CONFLICT DO NOTHING;
