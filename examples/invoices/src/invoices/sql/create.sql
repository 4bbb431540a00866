-- Create an invoice and its item; false if the number belongs to another invoice.
SELECT invoices.create_invoice($1, $2, $3);
