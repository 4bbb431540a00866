-- Which item carries which event to which subscription, redeliveries included.
CREATE OR REPLACE VIEW penstock.webhook_delivery AS
SELECT event.event_no, d.subscription_no, d.item_id, NULL::bigint AS replay_no
FROM penstock.webhook_event AS event
CROSS JOIN LATERAL unnest(event.subscription_nos, event.item_ids) AS d (subscription_no, item_id)
UNION ALL
SELECT event_no, subscription_no, item_id, replay_no FROM penstock.webhook_redelivery;
