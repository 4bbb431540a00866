-- Note instructions that may have been paid and are not noted yet, and archive those that a dead worker
-- left as UNKNOWN: it could not. Two processes at once note and archive each only once. One that was
-- noted for an earlier attempt is asked about later each time, $3 being the first wait and $4 the
-- longest: sent again, it came to the same end.
-- The items are locked: one that another transaction ends at this moment is left to it. Archived as
-- UNKNOWN after its end, an instruction would be in doubt for ever.
WITH candidate AS MATERIALIZED (
    SELECT u.*
    FROM penstock.outbox_unknown AS u
    WHERE NOT EXISTS (
        SELECT FROM penstock.outbox_lookup AS k
        WHERE k.item_id = u.id AND k.attempt = u.attempt AND k.purpose = 'unknown'
    )
    ORDER BY u.id
    LIMIT $1
), unknown AS MATERIALIZED (
    SELECT candidate.*
    FROM candidate
    CROSS JOIN LATERAL (
        SELECT FROM penstock.held WHERE held.id = candidate.id FOR UPDATE SKIP LOCKED
    ) AS locked
), noted AS (
    INSERT INTO penstock.outbox_lookup AS k (item_id, attempt, rail_type, purpose, due_at, since)
    SELECT id, attempt, rail_type, 'unknown', coalesce($2::timestamptz, now()), settled_at FROM unknown
    ON CONFLICT (item_id) DO UPDATE
    SET (attempt, purpose, left_at, looks) = (excluded.attempt, excluded.purpose, NULL, 0),
        due_at = excluded.due_at + least($3::interval * (2 ^ least(k.releases, 20) - 1), $4::interval)
    WHERE (k.attempt, k.purpose) <> (excluded.attempt, excluded.purpose)
    RETURNING k.item_id
), archived AS (
    INSERT INTO penstock.outbox_attempt
        (attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, error_code, error_message,
         created_at, token)
    SELECT penstock.uuid_v7(), outbox_id, attempt, 'UNKNOWN', claimed_at, settled_at, 'LOST',
        'the lease expired before the worker wrote a result', now(), token
    FROM unknown JOIN noted ON noted.item_id = unknown.id
    WHERE unknown.outcome = 'lost'
)
SELECT unknown.* FROM unknown JOIN noted ON noted.item_id = unknown.id;
