-- Return an instant as microseconds since 1970. All arithmetic of slots is in whole microseconds,
-- and in hours instead of days: a day may have 23 of them in a session's time zone. STABLE, as
-- extract is: otherwise it is not inlined into the statements that use it.
CREATE OR REPLACE FUNCTION penstock.to_micros(at timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM at) * 1000000)::bigint;
