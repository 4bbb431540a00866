-- Ask again at another instant; $5: only a person can decide about it now. A lookup that another process
-- has made meanwhile, for another attempt or purpose, is left alone.
UPDATE penstock.outbox_lookup
SET due_at = $4, left_at = CASE WHEN $5 THEN coalesce(left_at, coalesce($6::timestamptz, now())) END
WHERE item_id = $1 AND attempt = $2 AND purpose = $3;
