-- Return an instant given as microseconds since 1970.
CREATE OR REPLACE FUNCTION penstock.from_micros(micros bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN timestamptz 'epoch' + micros * interval '1 microsecond';
