-- Dispatched instructions that their rail has neither settled nor returned in time. Counting stops early,
-- so that a scrape stays cheap.
SELECT count(*) AS value
FROM (
    SELECT FROM penstock.outbox_lookup
    WHERE purpose = 'settlement' AND left_at IS NOT NULL
    LIMIT 100000
) AS unsettled;
