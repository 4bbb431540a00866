-- Give back the slot that an item has taken, if it has one. Without the slots there is none: the
-- kernel is installed alone, and give_back_due_instant is looked up when it is called.
CREATE OR REPLACE FUNCTION penstock.release_due_instant(item_id bigint, at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF to_regprocedure('penstock.give_back_due_instant(bigint, timestamptz)') IS NOT NULL THEN
        PERFORM penstock.give_back_due_instant(item_id, at);
    END IF;
END $$;
