-- The next participant to look at that no other process looks at; a decision that is made meanwhile
-- waits, and asks for another look. A head in flight is left until its lease has ended.
SELECT participant_id
FROM penstock.outbox_recheck
WHERE NOT EXISTS (
    SELECT FROM penstock.lease
    JOIN penstock.lane USING (lane_id)
    CROSS JOIN LATERAL unnest(lease.item_ids) AS leased (item_id)
    JOIN penstock.outbox_instruction AS instruction USING (item_id)
    WHERE lane.name = $1 AND instruction.participant_id = outbox_recheck.participant_id)
ORDER BY at
LIMIT 1
FOR UPDATE SKIP LOCKED;
