-- Delete those of the given items that ended longer ago than their lane's retention, with their
-- attempts, the rows of domains that belong to them, and all else that is known of them, except
-- their keys. The others are listed in retained_item, to be looked at again. Returns how many were
-- deleted. Needs no lock on an item: one that has ended stays ended, and only ended ones are
-- deleted.
CREATE OR REPLACE FUNCTION penstock.trim_items(ids bigint[], at timestamptz) RETURNS bigint
LANGUAGE plpgsql
-- Few ids are looked up in indexes; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    expired_ids bigint[];
    retained_ids bigint[];
    belonging record;
BEGIN
    WITH known AS MATERIALIZED (
        -- Grouped instead of joined: a join of two lists that have no index may take seconds.
        SELECT id, max(lane_id) AS lane_id, max(ended_at) AS ended_at
        FROM (
            SELECT id, lane_id, NULL::timestamptz AS ended_at
            FROM penstock.item
            WHERE id = ANY (ids)
            UNION ALL
            SELECT item_id, NULL, ended_at FROM penstock.ending WHERE item_id = ANY (ids)
        ) AS found
        GROUP BY id
    ), examined AS MATERIALIZED (
        SELECT known.*,
            coalesce(ended_at <= trim_items.at - retention, false) AS is_expired
        FROM known JOIN penstock.lane USING (lane_id)
    ), retained AS (
        INSERT INTO penstock.retained_item (id, from_at, lane_id)
        SELECT id, coalesce(ended_at, trim_items.at), lane_id FROM examined WHERE NOT is_expired
        ON CONFLICT (id) DO UPDATE SET from_at = excluded.from_at
    )
    SELECT array_agg(id) FILTER (WHERE is_expired), array_agg(id) FILTER (WHERE NOT is_expired)
    INTO expired_ids, retained_ids
    FROM examined;

    DELETE FROM penstock.attempt WHERE item_id = ANY (expired_ids);
    DELETE FROM penstock.late_result WHERE item_id = ANY (expired_ids);
    DELETE FROM penstock.moved WHERE item_id = ANY (expired_ids);
    DELETE FROM penstock.cancelled WHERE id = ANY (expired_ids);
    DELETE FROM penstock.item WHERE id = ANY (expired_ids);
    FOR belonging IN SELECT name, item_column FROM penstock.daily_table WHERE item_column IS NOT NULL LOOP
        EXECUTE format('DELETE FROM penstock.%I WHERE %I = ANY ($1)', belonging.name, belonging.item_column)
        USING expired_ids;
    END LOOP;
    -- Items that were dropped with their day are no longer listed either.
    DELETE FROM penstock.retained_item
    WHERE id = ANY (ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(retained_ids)));
    RETURN coalesce(cardinality(expired_ids), 0);
END $$;
