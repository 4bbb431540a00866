-- Give up the content of a payment on the day that it leaves.
DELETE FROM penstock.payment_fingerprint WHERE fingerprint = $1 AND payment_id = $2;
