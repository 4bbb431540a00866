-- Archive the endings of settled attempts. Without its instruction ($2 is NULL), an item of which the
-- payload could not be read is found by its id.
INSERT INTO penstock.outbox_attempt
    (attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, rail_reference, rail_code,
     error_code, error_message, latency_ms, created_at, token)
SELECT penstock.uuid_v7(), e.outbox_id, e.attempt_no, e.state, e.claimed_at,
    greatest(now(), e.claimed_at + make_interval(secs => e.latency_ms / 1000.0)), e.rail_reference,
    e.rail_code, e.error_code, e.error_message, e.latency_ms, now(), e.token
FROM (
    SELECT coalesce(u.outbox_id, (
            SELECT i.outbox_id FROM penstock.outbox_instruction AS i WHERE i.item_id = u.item_id
        )) AS outbox_id, u.attempt_no, u.state, u.claimed_at, u.rail_reference, u.rail_code,
        u.error_code, u.error_message, u.latency_ms, u.token
    FROM unnest($1::bigint[], $2::uuid[], $3::integer[], $4::text[], $5::timestamptz[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::integer[], $11::bigint[])
        AS u (item_id, outbox_id, attempt_no, state, claimed_at, rail_reference, rail_code, error_code,
            error_message, latency_ms, token)
) AS e
WHERE e.outbox_id IS NOT NULL;
