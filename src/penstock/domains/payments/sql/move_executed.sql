-- Move payments of which the instructions were accepted; the row is written once, with both instants.
SELECT penstock.move_payments(
    $1::text[], ARRAY['SCHEDULED'], 'PROCESSING', outbox_ids => $2::uuid[]);
