-- A payment that moves to another day gives up the content that it had on the others: which these are
-- depends on the calendar of their time.
CREATE INDEX payment_fingerprint_payment ON penstock.payment_fingerprint (payment_id);
