-- Return the last attempt of an instruction up to which nothing is in doubt; NULL if there is none. An
-- attempt is cleared by a later row of the archive that says so, and by a later call with a clear
-- refusal: such a call is only made, or only recorded as refused, if no earlier one is in doubt.
-- RELEASED and SAME_KEY prove nothing: the instruction is tried again in spite of the doubt.
CREATE OR REPLACE FUNCTION penstock.outbox_last_cleared(of_outbox uuid) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT max(a.attempt_no)
    FROM penstock.outbox_attempt AS a
    WHERE a.outbox_id = of_outbox AND (a.state = 'RETRYABLE'
        OR (a.state = 'ZOMBIE_REQUEUE' AND a.error_code NOT IN ('SAME_KEY', 'RELEASED'))
        OR (a.state = 'FAILED' AND a.error_code IN ('NOT_PAID', 'TERMINAL', 'RETRYABLE', 'NOT_SENT')))
$$;
