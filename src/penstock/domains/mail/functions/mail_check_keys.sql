-- Raise PS409 for a key that is new in this lane of mail and belongs to a mail in the other one.
-- Called in a statement of its own, after the keys were inserted into mail_key: only then is the
-- item of a transaction that was waited for visible.
CREATE OR REPLACE FUNCTION penstock.mail_check_keys(
    lane text, keys text[], payloads jsonb[], are_new boolean[]
) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    clash record;
BEGIN
    SELECT given.key, other.item_id, other.payload_hash AS stored_hash,
        sha256(convert_to(given.payload::text, 'UTF8')) AS given_hash
    INTO clash
    FROM unnest(keys, payloads, are_new) AS given (key, payload, is_new)
    JOIN penstock.idempotency AS other ON other.key = given.key AND other.lane_id = (
        SELECT lane_id FROM penstock.lane
        WHERE name = CASE mail_check_keys.lane
            WHEN 'penstock.mail' THEN 'penstock.mail.bulk' ELSE 'penstock.mail' END)
    WHERE given.is_new
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'key % already has a mail with another bulk', quote_literal(clash.key)
            USING ERRCODE = 'PS409', DETAIL = jsonb_build_object(
                'key', clash.key, 'item_id', clash.item_id,
                'stored_hash', encode(clash.stored_hash, 'hex'),
                'given_hash', encode(clash.given_hash, 'hex'), 'field', 'bulk')::text;
    END IF;
END $$;
