-- End payments that cannot be executed; in this transaction they may have been moved already.
SELECT penstock.move_payments(
    $1::text[], ARRAY['SCHEDULED', 'PROCESSING'], 'REJECTED', reasons => $2::text[]);
