-- Ask the rail later whether dispatched instructions are settled or returned.
INSERT INTO penstock.outbox_lookup AS k (item_id, attempt, rail_type, purpose, due_at, since)
SELECT i.item_id, given.attempt, i.rail_type, 'settlement',
    coalesce($4::timestamptz, now()) + $3::interval, coalesce($4::timestamptz, now())
FROM unnest($1::bigint[], $2::integer[]) AS given (item_id, attempt)
JOIN penstock.outbox_instruction AS i USING (item_id)
ON CONFLICT (item_id) DO UPDATE
SET (attempt, purpose, due_at, since, looks, left_at)
    = (excluded.attempt, excluded.purpose, excluded.due_at, excluded.since, 0, NULL);
