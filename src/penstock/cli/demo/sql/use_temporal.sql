-- Execute payments on Temporal from the next claim on, as an operator does it.
UPDATE penstock.payment_item_type SET engine = 'temporal' WHERE item_type = 'PAYMENT';
