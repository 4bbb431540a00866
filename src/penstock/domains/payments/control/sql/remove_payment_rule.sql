-- Remove the rule of an item type, and return it for the audit.
DELETE FROM penstock.payment_rule
WHERE item_type = $1
RETURNING item_type, refuses_duplicates, calendar;
