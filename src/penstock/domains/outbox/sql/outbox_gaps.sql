-- Numbers that an operator has passed over, and numbers that were taken without an instruction. Counting
-- stops early, so that a scrape stays cheap.
SELECT (SELECT count(*) FROM (SELECT FROM penstock.outbox_gap LIMIT 100000) AS g)
    + (SELECT count(*) FROM (SELECT FROM penstock.outbox_taken_number LIMIT 100000) AS t) AS value;
