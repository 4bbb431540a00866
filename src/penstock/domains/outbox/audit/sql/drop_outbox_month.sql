-- Remove a month of the archive; NULL if it has to stay.
SELECT penstock.drop_outbox_month($1::date);
