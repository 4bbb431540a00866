-- Send an event to one subscription, whatever it asks for.
SELECT penstock.redeliver(ARRAY[known.event_no], $3, 0, now())
FROM penstock.webhook_event_id AS known
WHERE known.tenant = $1 AND known.event_id = $2;
