-- Delete invoices that were sent longer ago than $1, and count them.
-- At most 10,000 at once, so that the transaction stays short.
WITH old AS MATERIALIZED (
    SELECT number
    FROM invoices.invoice
    WHERE sent_at < now() - $1::interval
    ORDER BY sent_at
    LIMIT 10000
), deleted AS (
    DELETE FROM invoices.invoice
    USING old
    WHERE invoice.number = old.number
    RETURNING invoice.number
)
SELECT count(*) FROM deleted;
