-- Set or replace the limits of one scope in one currency.
INSERT INTO penstock.outbox_limit (scope, name, currency, amount_max, approval_above, day_amount_max)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, name, currency) DO UPDATE SET amount_max = excluded.amount_max,
    approval_above = excluded.approval_above, day_amount_max = excluded.day_amount_max;
