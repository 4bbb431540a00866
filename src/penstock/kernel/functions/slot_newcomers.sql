-- Take slots for the items whose keys are not known yet; of several items with one key, for the
-- first. Returns one row per position: the item's id, which is NULL where no slot was taken, and
-- its due_at. plpgsql, because take_due_instants belongs to the slots and is looked up when it is
-- called: the kernel is installed without it.
CREATE OR REPLACE FUNCTION penstock.slot_newcomers(
    policy penstock.lane, keys text[], due_ats timestamptz[], at timestamptz
) RETURNS TABLE (index bigint, item_id bigint, due_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT g.index, g.due_at, CASE
            WHEN g.key IS NULL OR (
                row_number() OVER (PARTITION BY g.key ORDER BY g.index) = 1
                AND (
                    SELECT true FROM penstock.idempotency AS known
                    WHERE known.lane_id = policy.lane_id AND known.key = g.key
                ) IS NULL)
            THEN nextval('penstock.item_id')
        END AS item_id
        FROM unnest(keys, due_ats) WITH ORDINALITY AS g (key, due_at, index)
    ), slot AS MATERIALIZED (
        SELECT taken.*
        FROM (
            SELECT array_agg(item_id ORDER BY index) AS ids,
                array_agg(coalesce(due_at, slot_newcomers.at) ORDER BY index) AS wanted
            FROM given
            WHERE item_id IS NOT NULL
        ) AS newcomers
        CROSS JOIN LATERAL penstock.take_due_instants(
            policy.slot_pool, ids, wanted, slot_newcomers.at) AS taken
        WHERE ids IS NOT NULL
    )
    SELECT given.index, given.item_id, coalesce(slot.due_at, given.due_at)
    FROM given LEFT JOIN slot USING (item_id);
END $$;
