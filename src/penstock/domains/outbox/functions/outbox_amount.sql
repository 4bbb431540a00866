-- Return the amount of a payload in units of its currency: `amount`, a decimal string, or
-- `amount_minor`, an integer number of its smallest unit. NULL if there is none, both, a number with a
-- fraction, or more decimals than the currency has: a float is never rounded.
CREATE OR REPLACE FUNCTION penstock.outbox_amount(payload jsonb) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN payload ? 'amount' = payload ? 'amount_minor' THEN NULL
        WHEN jsonb_typeof(payload -> 'amount_minor') = 'number'
            AND payload ->> 'amount_minor' ~ '^[0-9]{1,18}$'
        THEN (payload ->> 'amount_minor')::numeric * penstock.currency_unit(payload ->> 'currency')
        WHEN jsonb_typeof(payload -> 'amount') = 'string'
            AND payload ->> 'amount' ~ '^(0|[1-9][0-9]{0,17})(\.[0-9]{1,4})?$'
            AND (payload ->> 'amount')::numeric % penstock.currency_unit(payload ->> 'currency') = 0
        THEN (payload ->> 'amount')::numeric
    END
$$;
