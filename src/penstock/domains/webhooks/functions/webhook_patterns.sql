-- Return every pattern that an event's type matches: itself, '*', and each of its prefixes with
-- '.*'.
CREATE OR REPLACE FUNCTION penstock.webhook_patterns(type text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[type, '*'] || ARRAY(
        SELECT array_to_string(segments[1:n], '.') || '.*'
        FROM string_to_array(type, '.') AS segments, generate_series(1, cardinality(segments) - 1) AS n)
$$;
