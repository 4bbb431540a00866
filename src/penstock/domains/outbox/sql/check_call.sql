-- Right before calls: how long each lease is still valid, and what stops the instruction. One row for
-- each call, in their order; `seconds_left` is NULL if the lease is over or no longer has the item.
-- A report that came after the instruction was loaded stops it as well: the next attempt ends it if it
-- was paid. A refusal stops it until it is applied: after that, a person has released the instruction.
-- So does the late result of another worker that has paid it.
-- The clock is read now, not at the start of a transaction. Leases are unnested once: their lists
-- may be compressed.
WITH leased AS MATERIALIZED (
    SELECT lease.token, item.id,
        extract(epoch FROM lease.expires_at - coalesce($6::timestamptz, clock_timestamp()))::float8
            AS seconds_left
    FROM penstock.lease CROSS JOIN LATERAL unnest(lease.item_ids) AS item (id)
    WHERE lease.token = ANY ($1::bigint[])
        AND lease.expires_at > coalesce($6::timestamptz, clock_timestamp())
)
SELECT leased.seconds_left, coalesce(
    (
        SELECT 'stopped: ' || s.reason
        FROM penstock.outbox_switch AS s
        WHERE s.scope = 'all' OR (s.scope = 'rail' AND s.name = given.rail_type)
            OR (s.scope = 'participant' AND s.name = given.participant_id)
        LIMIT 1
    ), (
        SELECT 'suspended: ' || s.reason
        FROM penstock.outbox_suspension AS s
        WHERE s.participant_id = given.participant_id
    ), (
        -- A limit may have been set, and the instruction rejected, since it was loaded.
        SELECT 'rejected: ' || a.reason
        FROM penstock.outbox_approval AS a
        WHERE a.outbox_id = given.outbox_id AND a.decision = 'rejected'
    ), (
        SELECT 'the rail reports it as ' || r.status
        FROM penstock.outbox_result AS r
        WHERE r.outbox_id = given.outbox_id AND (r.status <> 'refused' OR r.applied_at IS NULL)
        LIMIT 1
    ), (
        SELECT 'another worker reports it as paid'
        FROM penstock.late_result AS l
        WHERE l.item_id = given.item_id AND l.outcome = 'done'
        LIMIT 1
    )) AS stop
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::uuid[]) WITH ORDINALITY
    AS given (token, item_id, rail_type, participant_id, outbox_id, place)
LEFT JOIN leased ON leased.token = given.token AND leased.id = given.item_id
ORDER BY given.place;
