-- Return whether a worker has said, after its lease had expired, that it paid an instruction.
CREATE OR REPLACE FUNCTION penstock.outbox_is_paid_late(of_outbox uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM penstock.outbox_instruction AS i
        JOIN penstock.late_result AS l USING (item_id)
        WHERE i.outbox_id = of_outbox AND l.outcome = 'done'
    )
$$;
