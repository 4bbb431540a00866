-- Lock an item type, so that one rule of it is changed after the other.
SELECT item_type FROM penstock.payment_item_type WHERE item_type = $1 FOR NO KEY UPDATE;
