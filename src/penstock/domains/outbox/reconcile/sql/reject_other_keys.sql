-- Reject what was accepted of an instruction under other keys: it was paid under this one after all, and
-- they would pay it again. What the rail has had already is left as it is. Their participants are looked
-- at again, because one may be held for an approval.
WITH rejected AS (
    INSERT INTO penstock.outbox_approval AS known (outbox_id, decision, key_id, reason, decided_at)
    SELECT other.outbox_id, 'rejected', $2, $3, now()
    FROM penstock.outbox_instruction AS own
    JOIN penstock.outbox_idempotency AS other USING (instruction_id)
    CROSS JOIN LATERAL penstock.outbox_last_states(ARRAY[other.outbox_id]) AS archived
    WHERE own.outbox_id = $1 AND other.outbox_id <> own.outbox_id
        AND NOT archived.states && ARRAY['DISPATCHED', 'SETTLED', 'RETURNED']
        AND NOT penstock.outbox_has_failed(other.outbox_id)
    ON CONFLICT (outbox_id) DO UPDATE
    SET (decision, key_id, reason, decided_at)
        = (excluded.decision, excluded.key_id, excluded.reason, excluded.decided_at)
    WHERE known.decision <> excluded.decision
    RETURNING known.outbox_id
), noted AS (
    INSERT INTO penstock.outbox_recheck (participant_id, at)
    SELECT DISTINCT i.participant_id, now()
    FROM rejected JOIN penstock.outbox_instruction AS i USING (outbox_id)
    ON CONFLICT (participant_id) DO UPDATE SET at = excluded.at
)
SELECT outbox_id FROM rejected;
