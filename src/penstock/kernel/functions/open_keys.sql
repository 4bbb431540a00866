-- Make every given order key active until the caller's transaction ends. Returns the keys that were
-- not active before: the caller provides their heads.
CREATE OR REPLACE FUNCTION penstock.open_keys(in_lane integer, wanted text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    opened text[] := '{}';
    fresh text[];
    shared text[];
BEGIN
    -- A key may be closed between the INSERT that found it and the lock; then it is opened again.
    WHILE cardinality(wanted) > 0 LOOP
        WITH inserted AS (
            INSERT INTO penstock.active_key (lane_id, order_key)
            SELECT in_lane, k FROM unnest(wanted) AS k ORDER BY k
            ON CONFLICT DO NOTHING
            RETURNING order_key
        )
        SELECT coalesce(array_agg(order_key), '{}') INTO fresh FROM inserted;
        WITH locked AS (
            SELECT order_key FROM penstock.active_key
            WHERE lane_id = in_lane AND order_key = ANY (wanted)
            FOR KEY SHARE
        )
        SELECT coalesce(array_agg(order_key), '{}') INTO shared FROM locked;
        opened := opened || fresh;
        wanted := ARRAY(SELECT unnest(wanted) EXCEPT SELECT unnest(shared));
    END LOOP;
    RETURN opened;
END $$;
