-- Move payments to another status, if they are in one of the expected statuses, and return the ids of
-- those that moved: a payment that another caller has moved is left out, so nothing is executed twice.
-- The arrays are parallel to `ids`; a NULL element, or no array, keeps what is stored, except that what
-- goes on or is settled has no reason. Rows are locked in the order of their ids, so that two callers
-- cannot deadlock.
-- Raises PS409 for a move that no payment can make.
CREATE OR REPLACE FUNCTION penstock.move_payments(
    ids text[],
    from_status text[],
    to_status text,
    at timestamptz DEFAULT now(),
    reasons text[] DEFAULT NULL,
    outbox_ids uuid[] DEFAULT NULL,
    rail_references text[] DEFAULT NULL
) RETURNS SETOF text
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT from_status <@ penstock.payment_statuses_before(to_status) THEN
        RAISE EXCEPTION 'a payment cannot move from % to %',
            array_to_string(from_status, ' or '), quote_nullable(to_status)
            USING ERRCODE = 'PS409';
    END IF;

    RETURN QUERY
    -- Looked up one by one: with a join the planner may scan all payments.
    WITH given AS MATERIALIZED (
        SELECT g.*
        FROM (
            SELECT *
            FROM unnest(ids, reasons, outbox_ids, rail_references)
                AS u (payment_id, reason, outbox_id, rail_reference)
            ORDER BY u.payment_id
        ) AS g
        CROSS JOIN LATERAL (
            SELECT FROM penstock.payment
            WHERE payment.payment_id = g.payment_id AND payment.status = ANY (from_status)
            FOR NO KEY UPDATE
        ) AS locked
    )
    UPDATE penstock.payment AS p
    SET status = to_status,
        reason = CASE
            WHEN to_status IN ('PROCESSING', 'SETTLED') THEN given.reason
            ELSE coalesce(given.reason, p.reason)
        END,
        outbox_id = coalesce(given.outbox_id, p.outbox_id),
        rail_reference = coalesce(given.rail_reference, p.rail_reference),
        accepted_at = CASE
            WHEN to_status IN ('ACCEPTED', 'PROCESSING') THEN coalesce(p.accepted_at, at)
            ELSE p.accepted_at
        END,
        processing_at = CASE
            WHEN to_status = 'PROCESSING' THEN coalesce(p.processing_at, at)
            ELSE p.processing_at
        END,
        ended_at = CASE
            WHEN to_status IN ('SETTLED', 'REJECTED', 'RETURNED', 'CANCELLED') THEN at
        END,
        updated_at = at
    FROM given
    WHERE p.payment_id = given.payment_id
    RETURNING p.payment_id;
END $$;
