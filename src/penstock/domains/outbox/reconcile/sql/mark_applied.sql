-- A report is applied.
UPDATE penstock.outbox_result SET applied_at = coalesce($3::timestamptz, now())
WHERE outbox_id = $1 AND status = $2;
