-- Return some fields of a lane's policy as the audit has them; durations are in seconds.
CREATE OR REPLACE FUNCTION penstock.policy_values(policy penstock.lane, fields text[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(field, CASE
        WHEN atttypid = 'interval'::regtype
            THEN to_jsonb(trim_scale(extract(epoch FROM (stored ->> field)::interval)))
        ELSE stored -> field
    END), '{}')
    FROM to_jsonb(policy) AS stored
    CROSS JOIN unnest(fields) AS field
    JOIN pg_attribute ON attrelid = 'penstock.lane'::regclass AND attname = field
$$;
