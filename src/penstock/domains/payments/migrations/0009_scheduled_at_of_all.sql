-- A payment had no scheduled_at until it was enqueued, so that lists left out those whose first phase had
-- ended before. It is set when the payment is persisted now; this is for earlier ones.
UPDATE penstock.payment SET scheduled_at = coalesce(execute_at, created_at) WHERE scheduled_at IS NULL;
