-- Move payments as the outbox says; return those that moved. The state machine has the statuses that they
-- may come from. Only the engines move one that is SCHEDULED: it has no instruction yet.
SELECT penstock.move_payments(
    $1::text[], array_remove(penstock.payment_statuses_before($2), 'SCHEDULED'), $2,
    reasons => $3::text[], rail_references => $4::text[]);
