-- Cancel a payment whose item is cancelled in the same transaction.
SELECT penstock.move_payments(ARRAY[$1::text], ARRAY['SCHEDULED'], 'CANCELLED',
    reasons => ARRAY[$2::text]);
