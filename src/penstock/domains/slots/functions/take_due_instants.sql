-- Take the slots of items whose lane names a pool; the event of a slot is `item:<id>`. The kernel
-- calls this when it accepts such items. Raises PS422 with the reason if there is no slot.
-- Items whose lane is given another pool later, or none, keep their slots.
CREATE OR REPLACE FUNCTION penstock.take_due_instants(
    pool text, item_ids bigint[], wanted timestamptz[], at timestamptz
) RETURNS TABLE (item_id bigint, due_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    slot record;
BEGIN
    FOR slot IN
        SELECT item_ids[a.index] AS item_id, a.scheduled_at, a.outcome
        FROM penstock.assign_slots(
            pool, ARRAY(SELECT 'item:' || id FROM unnest(item_ids) AS id), wanted,
            -- The caller's instant is the start of its transaction, which may be long ago.
            greatest(take_due_instants.at, clock_timestamp())) AS a
    LOOP
        IF slot.outcome <> 'assigned' THEN
            RAISE EXCEPTION 'no slot of pool %: %', quote_literal(pool), slot.outcome
                USING ERRCODE = 'PS422',
                    DETAIL = jsonb_build_object('pool', pool, 'reason', slot.outcome)::text;
        END IF;
        item_id := slot.item_id;
        due_at := slot.scheduled_at;
        RETURN NEXT;
    END LOOP;
END $$;
