-- Move payments as the outbox says, from one of the expected statuses; return those that moved.
SELECT penstock.move_payments(
    $1::text[], $2::text[], $3, reasons => $4::text[], rail_references => $5::text[]);
