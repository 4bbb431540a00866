-- Move payments whose instructions are sent next, in this transaction; the row is written once, with
-- both instants.
SELECT penstock.move_payments(
    $1::text[], ARRAY['SCHEDULED'], 'PROCESSING', outbox_ids => $2::uuid[]);
