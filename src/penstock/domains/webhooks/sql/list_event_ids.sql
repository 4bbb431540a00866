-- The ids of a tenant's events that begin with a text, the oldest first. Ids are compared by bytes,
-- so that the primary key finds them.
SELECT event_id
FROM penstock.webhook_event_id
WHERE tenant = $1 AND event_id >= $2 AND event_id < $2 || '~'
ORDER BY event_no
LIMIT $3;
