-- Instructions that wait, under the table name and the columns of the outbox that this replaces. An
-- INSERT sends an instruction. What a worker has claimed is in payment_outbox_attempts. The joined
-- sequence refuses FOR UPDATE, see migration 0001.
CREATE OR REPLACE VIEW penstock.payment_outbox_pending AS
SELECT instruction.outbox_id, instruction.instruction_id, instruction.participant_id,
    instruction.sequence_id, instruction.idempotency_key, instruction.rail_type, instruction.payload,
    waiting.attempt AS attempt_count, waiting.due_at AS next_attempt_at, instruction.created_at
FROM (
    SELECT ready.id, ready.due_at, ready.attempt FROM penstock.ready
    WHERE ready.lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
    UNION ALL
    SELECT parked.id, parked.due_at, parked.attempt FROM penstock.parked
    WHERE parked.lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
) AS waiting
JOIN penstock.outbox_instruction AS instruction ON instruction.item_id = waiting.id
CROSS JOIN penstock.penstock_worker_dispatches;
