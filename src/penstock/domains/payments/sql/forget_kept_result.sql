-- A kept result is applied.
DELETE FROM penstock.payment_kept_result WHERE id = $1;
