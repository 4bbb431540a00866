-- Return how many cells a rule has before an instant, counted from 1970: the number of the first
-- one at or after it. Cell p of a window begins ceil(p * window / capacity) microseconds into it.
CREATE OR REPLACE FUNCTION penstock.cells_before(micros bigint, window_us bigint, capacity integer)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (micros - 1) / window_us * capacity + (micros - 1) % window_us * capacity / window_us + 1;
