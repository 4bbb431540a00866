-- Set or replace the rule of an item type.
INSERT INTO penstock.payment_rule (item_type, refuses_duplicates, calendar)
VALUES ($1, $2, $3)
ON CONFLICT (item_type) DO UPDATE
SET refuses_duplicates = excluded.refuses_duplicates, calendar = excluded.calendar;
