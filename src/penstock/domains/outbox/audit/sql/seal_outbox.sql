-- Seal the next rows of the archive; NULL while another session does so.
SELECT penstock.seal_outbox($1::integer);
