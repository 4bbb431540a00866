-- Return the hash over the rows of a seal: their ids and hashes, in the order of the arrays.
CREATE OR REPLACE FUNCTION penstock.outbox_rows_hash(attempt_ids uuid[], row_hashes bytea[])
RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(array_send(attempt_ids) || array_send(row_hashes))
$$;
