-- Return whether a delivery is done, also if retention has dropped its history. Of the dropped
-- ones, only the audit shows which were cancelled.
CREATE OR REPLACE FUNCTION penstock.webhook_was_delivered(item bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
            SELECT FROM penstock.attempt WHERE attempt.item_id = item AND outcome = 'done')
        OR NOT EXISTS (SELECT FROM penstock.item AS kept WHERE kept.id = item)
            AND item IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM penstock.audit
                WHERE subject = item::text AND action = 'item.cancelled')
$$;
