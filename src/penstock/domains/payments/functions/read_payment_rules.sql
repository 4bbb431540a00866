-- Return what the rules know about payments before they are persisted, by index. `day_total` is locked
-- until the transaction ends, so that the payments of two callers are counted one after the other; rows
-- are locked in one order. `holder` is the payment that has the fingerprint, which is NULL where
-- duplicates are allowed: a payment that does not exist, or was cancelled or rejected, gives it up.
-- Each statement sees what others committed while the one before it waited.
CREATE OR REPLACE FUNCTION penstock.read_payment_rules(
    payment_ids text[], item_types text[], participant_ids text[], currencies text[], days date[],
    fingerprints text[]
) RETURNS TABLE (
    index bigint, amount_max numeric, day_amount_max numeric, day_total numeric, holder text
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    amounts_max numeric[];
    day_amounts_max numeric[];
BEGIN
    SELECT array_agg(CASE WHEN rule.refuses_duplicates THEN g.fingerprint END ORDER BY g.index),
        array_agg(coalesce(own.amount_max, common.amount_max) ORDER BY g.index),
        array_agg(coalesce(own.day_amount_max, common.day_amount_max) ORDER BY g.index)
    INTO fingerprints, amounts_max, day_amounts_max
    FROM unnest(item_types, participant_ids, currencies, fingerprints)
        WITH ORDINALITY AS g (item_type, participant_id, currency, fingerprint, index)
    LEFT JOIN penstock.payment_rule AS rule USING (item_type)
    LEFT JOIN penstock.payment_limit AS own
        ON own.participant_id = g.participant_id AND own.currency = g.currency
    LEFT JOIN penstock.payment_limit AS common
        ON common.participant_id = '' AND common.currency = g.currency;

    INSERT INTO penstock.payment_day_total (participant_id, currency, day)
    SELECT DISTINCT g.participant_id COLLATE "C", g.currency COLLATE "C", g.day
    FROM unnest(participant_ids, currencies, days, day_amounts_max)
        AS g (participant_id, currency, day, day_amount_max)
    WHERE g.day_amount_max IS NOT NULL
    ORDER BY 1, 2, 3
    ON CONFLICT DO NOTHING;
    PERFORM FROM penstock.payment_day_total
    WHERE (participant_id, currency, day) IN (
        SELECT g.participant_id, g.currency, g.day
        FROM unnest(participant_ids, currencies, days, day_amounts_max)
            AS g (participant_id, currency, day, day_amount_max)
        WHERE g.day_amount_max IS NOT NULL)
    ORDER BY participant_id, currency, day
    FOR UPDATE;

    INSERT INTO penstock.payment_fingerprint (fingerprint, payment_id)
    SELECT DISTINCT ON (g.fingerprint COLLATE "C") g.fingerprint, g.payment_id
    FROM unnest(fingerprints, payment_ids) WITH ORDINALITY AS g (fingerprint, payment_id, index)
    WHERE g.fingerprint IS NOT NULL
    ORDER BY g.fingerprint COLLATE "C", g.index
    ON CONFLICT DO NOTHING;
    PERFORM FROM penstock.payment_fingerprint
    WHERE fingerprint = ANY (fingerprints)
    ORDER BY fingerprint
    FOR UPDATE;
    UPDATE penstock.payment_fingerprint AS f
    SET payment_id = taker.payment_id
    FROM (
        SELECT DISTINCT ON (g.fingerprint) g.fingerprint, g.payment_id
        FROM unnest(fingerprints, payment_ids) WITH ORDINALITY AS g (fingerprint, payment_id, index)
        ORDER BY g.fingerprint, g.index
    ) AS taker
    WHERE f.fingerprint = taker.fingerprint AND NOT EXISTS (
        SELECT FROM penstock.payment AS p
        WHERE p.payment_id = f.payment_id AND p.status NOT IN ('CANCELLED', 'REJECTED'));

    RETURN QUERY
    SELECT g.index, g.amount_max, g.day_amount_max, t.amount, f.payment_id
    FROM unnest(participant_ids, currencies, days, fingerprints, amounts_max, day_amounts_max)
        WITH ORDINALITY
        AS g (participant_id, currency, day, fingerprint, amount_max, day_amount_max, index)
    LEFT JOIN penstock.payment_day_total AS t
        ON g.day_amount_max IS NOT NULL
        AND (t.participant_id, t.currency, t.day) = (g.participant_id, g.currency, g.day)
    LEFT JOIN penstock.payment_fingerprint AS f USING (fingerprint);
END $$;
