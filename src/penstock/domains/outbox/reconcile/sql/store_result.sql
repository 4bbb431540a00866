-- Keep what a rail reports, once for each status; true if it is new.
INSERT INTO penstock.outbox_result
    (outbox_id, status, rail_code, rail_reference, occurred_at, received_at, due_at)
VALUES ($1, $2, $3, $4, $5, coalesce($6::timestamptz, now()), coalesce($6::timestamptz, now()))
ON CONFLICT DO NOTHING
RETURNING true;
