-- Return whether what a rail says is about a call that it refused before another one was made: the
-- reference is that of a refused attempt, a later attempt was made, and none that was accepted or is in
-- doubt has the same reference, as on a rail that recognises keys. It decides nothing about the later one.
CREATE OR REPLACE FUNCTION penstock.outbox_is_of_refused_call(of_outbox uuid, reference text)
RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM penstock.outbox_attempt AS refused
        WHERE refused.outbox_id = of_outbox AND refused.rail_reference = reference
            AND refused.state IN ('FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE')
            AND (
                EXISTS (
                    SELECT FROM penstock.outbox_attempt AS later
                    WHERE later.outbox_id = of_outbox AND later.attempt_no > refused.attempt_no
                )
                -- One that was lost and is not archived yet, and one in flight. After a refusal for now
                -- the one in flight may have the same reference: that is known when it has ended.
                OR EXISTS (
                    SELECT FROM penstock.outbox_instruction AS i
                    CROSS JOIN LATERAL penstock.locate(ARRAY[i.item_id]) AS place
                    WHERE i.outbox_id = of_outbox
                        AND (place.attempts > refused.attempt_no
                            OR (place.state = 'leased' AND refused.state = 'FAILED'))
                )
            )
    ) AND NOT EXISTS (
        SELECT FROM penstock.outbox_attempt AS other
        WHERE other.outbox_id = of_outbox AND other.rail_reference = reference
            AND other.state IN ('DISPATCHED', 'UNKNOWN')
    )
$$;
