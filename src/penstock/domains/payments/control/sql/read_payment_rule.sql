-- The rule of an item type.
SELECT item_type, refuses_duplicates, calendar FROM penstock.payment_rule WHERE item_type = $1;
