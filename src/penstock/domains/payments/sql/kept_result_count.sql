-- Results that wait to be applied. Counting stops early, so that a scrape stays cheap.
SELECT count(*) AS value
FROM (SELECT FROM penstock.payment_kept_result LIMIT 100000) AS kept;
