-- A database as it stands after a busy day: 500k due, 500k future and 333k finished items in one lane,
-- 20k lines of eleven items in another, and a lane with almost nothing. Yesterday's partition
-- holds what is finished, today's the rest. `ready` and today's partition have so many pages that a
-- walk over either exceeds what a statement may touch for 500 rows, even if an index hides it.
SELECT penstock.open_day((now() AT TIME ZONE 'UTC')::date - 1);

CREATE TEMPORARY TABLE base AS
SELECT ((now() AT TIME ZONE 'UTC')::date - date '1970-01-01')::bigint << 32 AS today,
    ((now() AT TIME ZONE 'UTC')::date - 1 - date '1970-01-01')::bigint << 32 AS yesterday;

-- Finished: every tenth needed a second attempt, each had a key: among much fewer keys,
-- the planner would rightly read all of them for a batch of 500.
INSERT INTO penstock.item (id, due_at, created_at, lane_id, key, payload)
SELECT yesterday + n, now() - interval '1 day', now() - interval '1 day', 1,
    'key-' || n, '{"n": 1}'
FROM base, generate_series(1, 333000) AS n;
INSERT INTO penstock.attempt
    (item_id, token, claimed_at, settled_at, retry_at, lane_id, duration_ms, attempt, outcome)
SELECT yesterday + n, n / 500, now() - interval '1 day', now() - interval '1 day',
    CASE WHEN try < tries THEN now() - interval '1 day' END, 1, 5, try,
    CASE WHEN try < tries THEN 'retry' ELSE 'done' END
FROM base, generate_series(1, 333000) AS n, LATERAL (SELECT 1 + (n % 10 = 0)::integer AS tries) AS t,
    generate_series(1, tries) AS try;
INSERT INTO penstock.idempotency (item_id, lane_id, key, payload_hash)
SELECT yesterday + n, 1, 'key-' || n, sha256('x') FROM base, generate_series(1, 333000) AS n;

-- Due, one every millisecond until now, and as many in the days to come.
INSERT INTO penstock.item (id, due_at, not_after, created_at, lane_id, payload)
SELECT today + n, now() + interval '1 ms' * (n - 500000) * CASE WHEN n > 500000 THEN 200 ELSE 1 END,
    CASE WHEN n % 500 = 0 THEN now() + interval '10 days' + interval '1 s' * n END,
    now() - interval '1 day', 1, '{"n": 1}'
FROM base, generate_series(1, 1000000) AS n;
INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
SELECT due_at, id, 1, 0, 0 FROM penstock.item, base WHERE id > today;
INSERT INTO penstock.deadline (not_after, item_id)
SELECT not_after, id FROM penstock.item WHERE not_after IS NOT NULL;

-- Lines: the head of each key is ready, ten followers are parked.
INSERT INTO penstock.item (id, due_at, created_at, lane_id, order_key, payload)
SELECT today + 2000000 + n, now() - interval '1 hour', now() - interval '1 hour', 2,
    'line-' || n % 20000, '{"n": 1}'
FROM base, generate_series(1, 220000) AS n;
INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
SELECT due_at, id, 2, 0, 0 FROM penstock.item, base
WHERE id > today + 2000000 AND id <= today + 2020000;
INSERT INTO penstock.parked (lane_id, order_key, position, id, due_at, attempt, forgiven)
SELECT 2, order_key, id, id, due_at, 0, 0 FROM penstock.item, base WHERE id > today + 2020000;
INSERT INTO penstock.active_key (lane_id, order_key)
SELECT 2, 'line-' || n FROM generate_series(0, 19999) AS n;

-- Dead letters, and a lane with five items.
INSERT INTO penstock.item (id, due_at, created_at, lane_id, payload)
SELECT today + 2300000 + n, now(), now(), CASE WHEN n <= 20000 THEN 1 ELSE 3 END, '{"n": 1}'
FROM base, generate_series(1, 20005) AS n;
INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
SELECT today + 2300000 + n, now(), 1, 5, 0, 'refused' FROM base, generate_series(1, 20000) AS n;
INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
SELECT now(), today + 2300000 + n, 3, 0, 0 FROM base, generate_series(20001, 20005) AS n;

SELECT setval('penstock.item_id', today + 3000000) FROM base;
