-- Give back the slot of a payment's item, and take another one if its lane has a pool. Returns when the
-- item is due.
SELECT penstock.retake_due_instant($1, $2);
