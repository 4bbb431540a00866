-- Return the state of an instruction, from where the kernel has its item and from the last row of the
-- archive. An item that retention has removed has ended. A held item may have been paid if its worker
-- died or its last answer was unknown; otherwise it waits, for an approval or for a person.
CREATE OR REPLACE FUNCTION penstock.outbox_state(item_state text, reason text, last_state text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN item_state IN ('scheduled', 'ready', 'parked') THEN 'PENDING'
        WHEN item_state = 'leased' THEN 'DISPATCHING'
        WHEN item_state = 'held' AND (reason = 'lost' OR last_state = 'UNKNOWN') THEN 'UNKNOWN'
        WHEN item_state = 'held' THEN 'PENDING'
        WHEN item_state IN ('dead', 'cancelled') THEN 'FAILED'
        WHEN last_state IN ('SETTLED', 'RETURNED') THEN last_state
        WHEN item_state = 'done' THEN 'DISPATCHED'
        ELSE last_state
    END
$$;
