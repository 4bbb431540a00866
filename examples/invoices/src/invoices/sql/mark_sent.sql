-- Record that an invoice was sent; no row if it was recorded before.
UPDATE invoices.invoice
SET sent_at = now(), sent_from = $2
WHERE number = $1 AND sent_at IS NULL
RETURNING true;
