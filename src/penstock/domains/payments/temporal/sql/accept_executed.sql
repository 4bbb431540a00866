-- Move payments of which the instructions were accepted; their notifications are a later step.
SELECT penstock.move_payments($1::text[], ARRAY['SCHEDULED'], 'ACCEPTED', outbox_ids => $2::uuid[]);
