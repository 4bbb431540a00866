-- Numbers that an operator has passed over. Counting stops early, so that a scrape stays cheap.
SELECT count(*) AS value
FROM (SELECT FROM penstock.outbox_gap LIMIT 100000) AS g;
