-- Return the hash of a seal: over the seal before it, its rows and its other columns.
CREATE OR REPLACE FUNCTION penstock.outbox_seal_hash(s penstock.outbox_seal)
RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(record_send(ROW(
        s.seal_no, s.kind, s.sealed_at, s.month, s.era, s.last_xid, s.last_attempt_id, s.row_count,
        s.rows_hash, s.previous_hash
    )))
$$;
