-- A view cannot see that its rows are selected FOR UPDATE. A sequence cannot be locked: joined into
-- payment_exec_queue, it makes such a claim fail before anything is paid, and its name says what
-- dispatches.
CREATE SEQUENCE penstock.penstock_worker_dispatches_payments;
