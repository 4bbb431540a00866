-- Return whether an instruction has ended without a payment, so that its instruction_id may be sent
-- under another key: it was returned, or it failed and nobody has tried it again since. The order of
-- rows decides nothing about a payment: a transaction that began before another may write after it. A
-- report of a payment that is not applied yet counts as one that is, and so does a worker's late result.
CREATE OR REPLACE FUNCTION penstock.outbox_has_failed(of_outbox uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN EXISTS (
            SELECT FROM penstock.outbox_result AS r
            WHERE r.outbox_id = of_outbox AND r.applied_at IS NULL AND r.status IN ('paid', 'settled')
        ) THEN false
        WHEN 'RETURNED' = ANY (known.states) THEN NOT known.is_contradicted
        WHEN known.states && ARRAY['DISPATCHED', 'SETTLED'] THEN false
        WHEN penstock.outbox_is_paid_late(of_outbox) THEN false
        WHEN known.state = 'FAILED' THEN
            EXISTS (SELECT FROM penstock.dead WHERE dead.id = instruction.item_id)
        ELSE false
    END
    FROM penstock.outbox_instruction AS instruction
    LEFT JOIN penstock.outbox_last_states(ARRAY[of_outbox]) AS known USING (outbox_id)
    WHERE instruction.outbox_id = of_outbox
$$;
