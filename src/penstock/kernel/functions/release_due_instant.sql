-- Cancel the slot of an item, if it has one. The kernel can be installed without the slots, so
-- give_back_due_instant is looked up only when it is called.
CREATE OR REPLACE FUNCTION penstock.release_due_instant(item_id bigint, at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF to_regprocedure('penstock.give_back_due_instant(bigint, timestamptz)') IS NOT NULL THEN
        PERFORM penstock.give_back_due_instant(item_id, at);
    END IF;
END $$;
