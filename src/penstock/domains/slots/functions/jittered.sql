-- Return a number chosen at random from [low, high).
CREATE OR REPLACE FUNCTION penstock.jittered(low bigint, high bigint) RETURNS bigint
LANGUAGE sql VOLATILE
RETURN low + floor(random() * (high - low))::bigint;
