-- Return the limits of one instruction: each number of the participant's row, else of the rail's, else of
-- the row for all.
CREATE OR REPLACE FUNCTION penstock.find_outbox_limit(
    of_participant text, of_rail text, in_currency text
) RETURNS TABLE (amount_max numeric, approval_above numeric, day_amount_max numeric)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(own.amount_max, rail.amount_max, every.amount_max),
        coalesce(own.approval_above, rail.approval_above, every.approval_above),
        coalesce(own.day_amount_max, every.day_amount_max)
    FROM (SELECT) AS one
    LEFT JOIN penstock.outbox_limit AS own
        ON (own.scope, own.name, own.currency) = ('participant', of_participant, in_currency)
    LEFT JOIN penstock.outbox_limit AS rail
        ON (rail.scope, rail.name, rail.currency) = ('rail', of_rail, in_currency)
    LEFT JOIN penstock.outbox_limit AS every
        ON (every.scope, every.name, every.currency) = ('all', '*', in_currency)
$$;
