-- Return whether an instruction was paid, as the archive, a report of its rail or a worker's late result
-- says. One that was returned is not, unless it was settled after that.
CREATE OR REPLACE FUNCTION penstock.outbox_is_paid(of_outbox uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN 'RETURNED' = ANY (known.states) THEN known.is_contradicted
        WHEN known.states && ARRAY['DISPATCHED', 'SETTLED'] THEN true
        ELSE EXISTS (
            SELECT FROM penstock.outbox_result AS r
            WHERE r.outbox_id = of_outbox AND r.status IN ('paid', 'settled')
        ) OR penstock.outbox_is_paid_late(of_outbox)
    END
    FROM penstock.outbox_last_states(ARRAY[of_outbox]) AS known
$$;
