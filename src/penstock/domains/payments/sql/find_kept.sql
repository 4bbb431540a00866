-- Find the payments of which results are kept.
SELECT DISTINCT payment_id FROM penstock.payment_kept_result WHERE payment_id = ANY ($1::text[]);
