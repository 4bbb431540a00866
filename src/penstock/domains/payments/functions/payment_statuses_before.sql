-- Return the statuses from which a payment can move to a status: the state machine of payments. One
-- expression, so that PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION penstock.payment_statuses_before(to_status text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE to_status
        WHEN 'ACCEPTED' THEN ARRAY['SCHEDULED']
        WHEN 'PROCESSING' THEN ARRAY['SCHEDULED', 'ACCEPTED', 'UNKNOWN', 'REJECTED']
        WHEN 'SETTLED' THEN ARRAY['ACCEPTED', 'PROCESSING', 'UNKNOWN', 'REJECTED']
        WHEN 'REJECTED' THEN ARRAY['SCHEDULED', 'ACCEPTED', 'PROCESSING', 'UNKNOWN']
        WHEN 'RETURNED' THEN ARRAY['ACCEPTED', 'PROCESSING', 'UNKNOWN', 'REJECTED', 'SETTLED']
        WHEN 'CANCELLED' THEN ARRAY['SCHEDULED']
        WHEN 'UNKNOWN' THEN ARRAY['ACCEPTED', 'PROCESSING', 'REJECTED']
        ELSE ARRAY[]::text[]
    END
$$;
