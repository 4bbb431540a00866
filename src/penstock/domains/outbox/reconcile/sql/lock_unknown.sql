-- Lock an instruction that may have been paid; no row if it is held for another reason, or not at
-- all.
SELECT u.attempt, u.outbox_id, penstock.outbox_is_paid(u.outbox_id) AS is_paid
FROM penstock.held JOIN penstock.outbox_unknown AS u USING (id)
WHERE held.id = $1
FOR UPDATE OF held;
