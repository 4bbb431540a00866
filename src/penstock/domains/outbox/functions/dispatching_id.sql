-- Return the attempt_id of the DISPATCHING row that the view payment_outbox_attempts derives: the same
-- while the attempt is in flight and after it has ended.
CREATE OR REPLACE FUNCTION penstock.dispatching_id(outbox_id uuid, token bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT md5(outbox_id::text || ' ' || token::text)::uuid
$$;
