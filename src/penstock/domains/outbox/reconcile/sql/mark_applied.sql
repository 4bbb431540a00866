-- A report is applied.
UPDATE penstock.outbox_result SET applied_at = coalesce($4::timestamptz, now())
WHERE outbox_id = $1 AND status = $2 AND attempt = $3;
