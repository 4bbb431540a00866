-- Return what is wrong with the payload of an instruction, or NULL; `amount` is what outbox_amount says
-- of it. Only what needs no other table; the destination is checked for its rail before the instruction
-- is sent.
CREATE OR REPLACE FUNCTION penstock.outbox_fault(payload jsonb, amount numeric) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN coalesce(jsonb_typeof(payload), '') <> 'object' THEN 'payload: must be an object'
        WHEN length(payload ->> 'currency') IS DISTINCT FROM 3
            OR translate(payload ->> 'currency', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '') <> ''
        THEN 'payload.currency: must be three capital letters of ISO 4217'
        WHEN coalesce(amount, 0) <= 0
        THEN 'payload.amount: must be a decimal string above zero with at most the decimals of '
            || 'the currency, or amount_minor an integer'
        WHEN coalesce(jsonb_typeof(payload -> 'destination'), '') <> 'object'
        THEN 'payload.destination: must be an object'
    END
$$;
