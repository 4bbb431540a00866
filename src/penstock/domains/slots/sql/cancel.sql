-- Give a slot back. NULL when the event never had one, so that a repeat can be told from a mistake.
SELECT CASE
    WHEN penstock.cancel_slot($1, $2, $3) THEN true
    WHEN EXISTS (SELECT FROM penstock.slot_cancelled WHERE event_id = $1) THEN false
END;
