-- Cancel the slot of an item, if it has one. The kernel calls this through release_due_instant.
CREATE OR REPLACE FUNCTION penstock.give_back_due_instant(item_id bigint, at timestamptz)
RETURNS void
LANGUAGE sql AS $$
    SELECT penstock.cancel_slot('item:' || item_id, 'item', at)
$$;
