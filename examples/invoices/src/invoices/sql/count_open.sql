-- The gauge invoices_open; reads the index of open invoices only.
SELECT count(*) AS value
FROM invoices.invoice
WHERE sent_at IS NULL;
