-- Cancel the slot of an item, if it has one, and take another one at or after `wanted` if the
-- item's lane names a pool now. Returns when the item is due; the caller reschedules it in the same
-- transaction. Raises PS422 with the reason if there is no slot. plpgsql, because the kernel is
-- installed without the slots.
CREATE OR REPLACE FUNCTION penstock.retake_due_instant(
    item_id bigint, wanted timestamptz, at timestamptz DEFAULT now()
) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    pool text;
    due_at timestamptz := wanted;
BEGIN
    PERFORM penstock.release_due_instant(item_id, at);
    SELECT lane.slot_pool INTO pool
    FROM penstock.item JOIN penstock.lane USING (lane_id)
    WHERE item.id = item_id;
    IF pool IS NOT NULL THEN
        SELECT taken.due_at INTO due_at
        FROM penstock.take_due_instants(pool, ARRAY[item_id], ARRAY[wanted], at) AS taken;
    END IF;
    RETURN due_at;
END $$;
