-- Note the new instants of payments whose items a reflow of slots has moved; the kernel calls it in the
-- reflow's transaction. A payment that another transaction holds is being rescheduled, cancelled or
-- executed and is left out: to wait for one that waits for the pool would be a deadlock.
CREATE OR REPLACE FUNCTION penstock.note_moved_instants(item_ids bigint[], to_ats timestamptz[])
RETURNS void
LANGUAGE sql AS $$
    -- Looked up one by one: with a join the planner may scan all payments.
    WITH found AS MATERIALIZED (
        SELECT locked.payment_id, given.to_at
        FROM unnest(item_ids, to_ats) AS given (item_id, to_at)
        CROSS JOIN LATERAL (
            SELECT key FROM penstock.item WHERE item.id = given.item_id LIMIT 1
        ) AS item
        CROSS JOIN LATERAL (
            SELECT payment_id FROM penstock.payment
            WHERE payment_id = item.key AND payment.item_id = given.item_id
                AND status = 'SCHEDULED'
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS locked
    )
    UPDATE penstock.payment AS p
    SET scheduled_at = found.to_at, updated_at = now()
    FROM found
    WHERE p.payment_id = found.payment_id
$$;
