-- Advance item ids to the block of a day, never backward. Only one caller at a time: two concurrent
-- ones could assign the same ids twice.
CREATE OR REPLACE FUNCTION penstock.turn_day(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    low bigint := (day - date '1970-01-01')::bigint << 32;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock.turn_day', 0));
    IF (SELECT last_value FROM penstock.item_id) < low THEN
        PERFORM setval('penstock.item_id', low);
    END IF;
END $$;
