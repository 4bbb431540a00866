-- Lock a payment, so that it is neither executed nor changed before the transaction ends.
SELECT payment_id, status, item_id, item_type, amount, currency, debtor, creditor, participant_id,
    rail_type, notify, execute_at, content_hash, created_by, created_at, counted_day, now() AS at
FROM penstock.payment
WHERE payment_id = $1
FOR NO KEY UPDATE;
