-- Return whether an instruction has ended without a payment, so that its instruction_id may be sent
-- under another key: it was returned, or it failed and nobody has tried it again since.
CREATE OR REPLACE FUNCTION penstock.outbox_has_failed(of_outbox uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE last.state
        WHEN 'RETURNED' THEN true
        WHEN 'FAILED' THEN EXISTS (SELECT FROM penstock.dead WHERE dead.id = instruction.item_id)
        ELSE false
    END
    FROM penstock.outbox_instruction AS instruction
    CROSS JOIN LATERAL (
        SELECT state FROM penstock.outbox_attempt AS attempt
        WHERE attempt.outbox_id = of_outbox
        ORDER BY attempt.created_at DESC, attempt.attempt_id DESC
        LIMIT 1
    ) AS last
    WHERE instruction.outbox_id = of_outbox
$$;
