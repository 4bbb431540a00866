-- What was tried of one instruction, in order; a claim comes before its ending.
SELECT attempt_id, attempt_no, state, claimed_at, completed_at, rail_reference, rail_code, error_code,
    error_message, latency_ms, created_at
FROM penstock.payment_outbox_attempts
WHERE outbox_id = $1
ORDER BY created_at, state <> 'DISPATCHING', attempt_id;
