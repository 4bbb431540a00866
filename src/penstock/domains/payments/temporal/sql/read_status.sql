-- Read the status of a payment of an item type, if there is one.
SELECT status FROM penstock.payment WHERE payment_id = $1 AND item_type = $2;
