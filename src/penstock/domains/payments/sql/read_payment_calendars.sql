-- The calendars of item types that have one, as parallel arrays in one row. Written so that it runs in any
-- driver: CAST, not ::.
SELECT array_agg(item_type), array_agg(CAST(calendar AS text))
FROM penstock.payment_rule
WHERE item_type = ANY (CAST($1 AS text[])) AND calendar IS NOT NULL;
