-- The last seal of the chain.
SELECT seal_no, hash
FROM penstock.outbox_seal
ORDER BY seal_no DESC
LIMIT 1;
