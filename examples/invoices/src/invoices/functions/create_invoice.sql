-- Create an invoice and the item that sends it, in the caller's transaction, from any language.
-- False if the number belongs to an invoice with another customer or amount; a repeat is harmless.
CREATE OR REPLACE FUNCTION invoices.create_invoice(
    new_number text,
    new_customer text,
    new_amount_cents bigint
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO invoices.invoice (number, customer, amount_cents)
    VALUES (new_number, new_customer, new_amount_cents)
    ON CONFLICT (number) DO NOTHING;
    IF FOUND THEN
        PERFORM penstock.enqueue(
            'invoices', jsonb_build_object('number', new_number),
            order_key => new_customer, owner => 'invoices');
        RETURN true;
    END IF;
    RETURN EXISTS (
        SELECT FROM invoices.invoice
        WHERE number = new_number
            AND customer = new_customer
            AND amount_cents = new_amount_cents
    );
END
$$;
