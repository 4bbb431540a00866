-- Forget a report that says nothing about the latest call.
DELETE FROM penstock.outbox_result WHERE outbox_id = $1 AND status = $2 AND attempt = $3;
