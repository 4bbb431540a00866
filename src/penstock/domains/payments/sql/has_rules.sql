-- Whether there are rules that count payments of a day.
SELECT EXISTS (SELECT FROM penstock.payment_limit)
    OR EXISTS (SELECT FROM penstock.payment_rule WHERE refuses_duplicates);
