-- Give up the content of a payment on the days that it has left; $2 is that of its present day.
DELETE FROM penstock.payment_fingerprint WHERE payment_id = $1 AND fingerprint <> $2;
