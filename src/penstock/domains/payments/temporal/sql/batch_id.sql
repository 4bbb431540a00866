-- Name a batch by its lease, as the views and the audit log do.
SELECT penstock.dispatch_batch_id($1);
