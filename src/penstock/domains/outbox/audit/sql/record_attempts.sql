-- Archive the endings of settled attempts of one lease. Without its instruction (an outbox_id that is
-- NULL), an item of which the payload could not be read is found by its id.
-- The lists $1 to $4 are text: encoding long arrays in the driver takes more of a worker's time.
-- Ids count up from one random number, as RFC 9562 allows (monotonic random): to draw one for each row
-- took a quarter of the time. The bit behind the variant is cleared, so that there is room to count.
WITH seed AS MATERIALIZED (
    SELECT left(made.id::text, 19) AS front,
        ('x' || right(replace(made.id::text, '-', ''), 16))::bit(64)::bigint & ~(1::bigint << 61)
            AS low
    FROM (SELECT penstock.uuid_v7() AS id) AS made
)
INSERT INTO penstock.outbox_attempt
    (attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, rail_reference, rail_code,
     error_code, error_message, latency_ms, created_at, token)
SELECT (seed.front || to_hex(seed.low + e.place))::uuid, e.outbox_id, e.attempt_no, e.state, $10::timestamptz,
    greatest(now(), $10::timestamptz + make_interval(secs => e.latency_ms / 1000.0)), e.rail_reference,
    e.rail_code, e.error_code, e.error_message, e.latency_ms, now(), $11::bigint
FROM (
    SELECT coalesce(u.outbox_id, (
            SELECT i.outbox_id FROM penstock.outbox_instruction AS i WHERE i.item_id = u.item_id
        )) AS outbox_id, u.attempt_no, u.state, u.rail_reference, u.rail_code, u.error_code,
        u.error_message, u.latency_ms, u.place
    FROM unnest($1::text::bigint[], $2::text::uuid[], $3::text::integer[], $4::text::integer[],
            $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]) WITH ORDINALITY
        AS u (item_id, outbox_id, attempt_no, latency_ms, state, rail_reference, rail_code, error_code,
            error_message, place)
) AS e
CROSS JOIN seed
WHERE e.outbox_id IS NOT NULL;
