-- Keep results that could not be applied.
INSERT INTO penstock.payment_kept_result (payment_id, outbox_id, status, rail_reference, reason)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[]);
