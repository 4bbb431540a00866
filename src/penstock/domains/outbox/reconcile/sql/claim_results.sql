-- Instructions with reports that could not be applied when they came; tried again after $2.
WITH due AS MATERIALIZED (
    SELECT outbox_id, status, attempt
    FROM penstock.outbox_result
    WHERE applied_at IS NULL AND due_at <= coalesce($3::timestamptz, now())
    ORDER BY due_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE penstock.outbox_result AS r
    SET due_at = coalesce($3::timestamptz, now()) + $2::interval
    FROM due
    WHERE r.outbox_id = due.outbox_id AND r.status = due.status AND r.attempt = due.attempt
)
SELECT DISTINCT outbox_id FROM due;
