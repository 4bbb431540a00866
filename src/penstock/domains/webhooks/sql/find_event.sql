-- The number of an event.
SELECT event_no FROM penstock.webhook_event_id WHERE tenant = $1 AND event_id = $2;
