-- The table of invoices, in a schema of its own.
CREATE SCHEMA invoices;

CREATE TABLE invoices.invoice (
    number text PRIMARY KEY,
    customer text NOT NULL,
    amount_cents bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    sent_at timestamptz,
    sent_from text,
    CONSTRAINT amount_is_positive CHECK (amount_cents > 0),
    CONSTRAINT sent_invoice_has_sender CHECK ((sent_at IS NULL) = (sent_from IS NULL))
);

-- A scrape counts open invoices, and must stay cheap when there are millions of sent ones.
CREATE INDEX invoice_open ON invoices.invoice (number) WHERE sent_at IS NULL;
CREATE INDEX invoice_sent ON invoices.invoice (sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX invoice_created ON invoices.invoice (created_at);
