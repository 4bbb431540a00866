-- Move payments whose notifications are enqueued, in this transaction.
SELECT penstock.move_payments($1::text[], ARRAY['ACCEPTED'], 'PROCESSING');
