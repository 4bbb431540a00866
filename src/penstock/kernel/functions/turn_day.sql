-- Move item ids on to the block of a day, only ever forward. One caller at a time: two that race
-- could hand out the same ids twice.
CREATE OR REPLACE FUNCTION penstock.turn_day(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    low bigint := (day - date '1970-01-01')::bigint << 32;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock.turn_day', 0));
    IF (SELECT last_value FROM penstock.item_id) < low THEN
        PERFORM setval('penstock.item_id', low);
    END IF;
END $$;
