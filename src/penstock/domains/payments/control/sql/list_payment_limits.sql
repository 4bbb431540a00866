-- All limits, those of all participants first.
SELECT participant_id, currency, amount_max, day_amount_max
FROM penstock.payment_limit
ORDER BY participant_id, currency;
