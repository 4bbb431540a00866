-- Kept results are looked up by payment, because a later one waits for those before it, and by the
-- instant at which they are tried.
CREATE INDEX payment_kept_result_by_payment ON penstock.payment_kept_result (payment_id, id);
CREATE INDEX payment_kept_result_due ON penstock.payment_kept_result (due_at, id);
