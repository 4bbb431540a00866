-- Cancel a slot. NULL if the event never had one, to distinguish a repeat from a mistake.
SELECT CASE
    WHEN penstock.cancel_slot($1, $2, $3) THEN true
    WHEN EXISTS (SELECT FROM penstock.slot_cancelled WHERE event_id = $1) THEN false
END;
