-- Each lane keeps its history for its own retention, so a day may have to be trimmed row by row
-- while another lane still needs it. Its progress is kept here, and which items to look at again.

-- The days that have partitions. Lanes are numbers of rows in lane.
CREATE TABLE penstock.history_day (
    day date PRIMARY KEY,
    -- When retention looks at the day next.
    look_at timestamptz NOT NULL,
    -- The lanes with items in the day whose retention was not over at the last look; NULL before
    -- the first one.
    waiting_lanes integer[],
    -- The lanes whose expired items are being deleted, from next_id on; NULL if none.
    trimmed_lanes integer[],
    next_id bigint,
    CONSTRAINT trim_has_a_position CHECK ((trimmed_lanes IS NULL) = (next_id IS NULL))
);
INSERT INTO penstock.history_day (day, look_at)
SELECT day, (day + 2)::timestamp AT TIME ZONE 'UTC'
FROM pg_inherits
JOIN pg_class ON pg_class.oid = inhrelid
CROSS JOIN LATERAL to_date(substring(relname FROM '\d{8}$'), 'YYYYMMDD') AS day
WHERE inhparent = 'penstock.item'::regclass AND relname ~ '^item_\d{8}$';

-- Items that were kept when their day was dropped, or when their lane was trimmed from it. Their
-- retention counts from from_at: the instant of their end, or that of the last look at them while
-- they had not ended.
CREATE TABLE penstock.retained_item (
    id bigint PRIMARY KEY,
    from_at timestamptz NOT NULL,
    lane_id integer NOT NULL
);
CREATE INDEX retained_item_by_age ON penstock.retained_item (lane_id, from_at);
INSERT INTO penstock.retained_item (id, from_at, lane_id)
SELECT id, '-infinity', lane_id FROM penstock.item_kept;
