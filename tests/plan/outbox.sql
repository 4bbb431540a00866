-- 50,000 instructions of 5,000 participants, each with an ending in the archive.
DO $$
BEGIN
    FOR chunk IN 0..9 LOOP
        PERFORM penstock.send_instructions(
            ARRAY(SELECT 'i-' || chunk * 5000 + n FROM generate_series(1, 5000) AS n),
            ARRAY(SELECT 'p-' || n FROM generate_series(1, 5000) AS n),
            array_fill('k-1'::text, ARRAY[5000]),
            array_fill('simulator'::text, ARRAY[5000]),
            array_fill('{"amount": "12.50", "currency": "EUR", "destination": {"name": "Ada"}}'::jsonb,
                ARRAY[5000]));
    END LOOP;
END $$;
INSERT INTO penstock.outbox_attempt (
    attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, created_at, token)
SELECT penstock.uuid_v7(), outbox_id, 1, 'RETRYABLE', created_at, created_at, created_at, 1
FROM penstock.outbox_instruction;
