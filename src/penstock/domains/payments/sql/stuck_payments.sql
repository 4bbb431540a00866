-- Payments that do not go on. The table is small.
SELECT count(*) AS value FROM penstock.payment_stuck;
