-- End payments that cannot be executed.
SELECT penstock.move_payments($1::text[], ARRAY['SCHEDULED'], 'REJECTED', reasons => $2::text[]);
