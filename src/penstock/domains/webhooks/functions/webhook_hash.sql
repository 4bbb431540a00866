-- Return the hash by which two events are compared. The separator cannot occur in a type or,
-- unescaped, in JSON. STABLE, as convert_to is: otherwise it is not inlined.
CREATE OR REPLACE FUNCTION penstock.webhook_hash(type text, source text, data text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(convert_to(type || E'\x1f' || coalesce(source, '') || E'\x1f' || data, 'UTF8'));
