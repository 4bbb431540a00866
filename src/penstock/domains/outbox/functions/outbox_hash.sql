-- Return the hash by which two instructions with one id and key are compared: who pays, over which
-- rail, and what.
CREATE OR REPLACE FUNCTION penstock.outbox_hash(participant_id text, rail_type text, payload jsonb)
RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT sha256(convert_to(jsonb_build_object(
        'participant_id', participant_id, 'rail_type', rail_type, 'payload', payload)::text, 'UTF8'))
$$;
