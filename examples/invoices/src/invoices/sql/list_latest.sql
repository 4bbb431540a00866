-- The latest invoices, newest first.
SELECT number, customer, amount_cents, created_at, sent_at, sent_from
FROM invoices.invoice
ORDER BY created_at DESC
LIMIT $1;
