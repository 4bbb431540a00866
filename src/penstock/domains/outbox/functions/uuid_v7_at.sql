-- Return a UUID of version 7 (RFC 9562) for an instant: 48 bits of milliseconds, the version, 12 bits
-- that order the instants within a millisecond, and random bits with the variant in front.
CREATE OR REPLACE FUNCTION penstock.uuid_v7_at(at timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        int8send((micros / 1000 << 16) | (7 << 12) | (micros % 1000 * 4096 / 1000))
            || substring(uuid_send(gen_random_uuid()) FROM 9),
        'hex')::uuid
    FROM (SELECT floor(extract(epoch FROM uuid_v7_at.at) * 1000000)::bigint AS micros) AS instant
$$;
