-- The rules of all item types that have one.
SELECT item_type, refuses_duplicates, calendar FROM penstock.payment_rule ORDER BY item_type;
