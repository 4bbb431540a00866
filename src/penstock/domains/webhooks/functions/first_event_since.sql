-- Return the first event at or after an instant, to within an hour. Numbers grow with time, so a
-- binary search finds the place in an index that has only numbers.
CREATE OR REPLACE FUNCTION penstock.first_event_since(since timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
DECLARE
    low bigint := 0;  -- Every event before it is too old.
    high bigint := (SELECT coalesce(max(event_no), 0) + 1 FROM penstock.webhook_event);
    middle bigint;
    is_old boolean;
BEGIN
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        SELECT accepted_at < since - interval '1 hour' INTO is_old
        FROM penstock.webhook_event
        WHERE event_no >= middle
        ORDER BY event_no
        LIMIT 1;
        IF is_old THEN
            low := middle + 1;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END $$;
