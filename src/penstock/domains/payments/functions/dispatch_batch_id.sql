-- Return the name of a batch: the token of its lease, in the form of the audit log.
CREATE OR REPLACE FUNCTION penstock.dispatch_batch_id(token bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'BATCH-' || lpad(to_hex(token), 8, '0')
$$;
