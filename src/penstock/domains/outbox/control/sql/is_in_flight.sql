-- Whether a worker holds an instruction of a participant.
SELECT EXISTS (
    SELECT FROM penstock.lease
    JOIN penstock.lane USING (lane_id)
    CROSS JOIN LATERAL unnest(lease.item_ids) AS leased (item_id)
    JOIN penstock.outbox_instruction AS instruction USING (item_id)
    WHERE lane.name = $1 AND instruction.participant_id = $2);
