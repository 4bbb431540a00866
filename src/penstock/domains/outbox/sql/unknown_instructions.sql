-- Held instructions that may have been paid. Counting stops early, so that a scrape stays cheap.
SELECT count(*) AS value
FROM (
    SELECT reason
    FROM penstock.held
    WHERE lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
    ORDER BY id
    LIMIT 100000
) AS h
WHERE reason = 'lost' OR starts_with(reason, 'unknown: ');
