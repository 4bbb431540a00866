-- Ask again at another instant; $4: only a person can decide about it now.
UPDATE penstock.outbox_lookup
SET due_at = $3, left_at = CASE WHEN $4 THEN coalesce(left_at, coalesce($5::timestamptz, now())) END
WHERE item_id = $1 AND attempt = $2;
