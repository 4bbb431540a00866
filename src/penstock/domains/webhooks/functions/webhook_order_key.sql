-- Return the order key of a delivery, or NULL: its subscription does not ask for order, or the
-- event has no such key. Long keys are hashed.
CREATE OR REPLACE FUNCTION penstock.webhook_order_key(
    subscription_id text, ordering_path text[], data text
) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN ordering_path IS NOT NULL THEN (
        SELECT subscription_id || ':' || CASE WHEN length(key) <= 128 THEN key ELSE md5(key) END
        FROM (SELECT data::jsonb #>> ordering_path AS key) AS found
    ) END
$$;
