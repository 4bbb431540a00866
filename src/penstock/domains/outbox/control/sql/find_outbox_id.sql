-- The instruction of an item.
SELECT outbox_id FROM penstock.outbox_instruction WHERE item_id = $1;
