-- Make lookups due that were left to a person, and whose instruction a worker has reported as paid after
-- its lease: the reconciler ends it now. Until then a person's decision that it was not is refused.
UPDATE penstock.outbox_lookup AS k
SET due_at = coalesce($1::timestamptz, now())
WHERE k.purpose = 'unknown' AND k.left_at IS NOT NULL AND k.due_at > coalesce($1::timestamptz, now())
    AND EXISTS (
        SELECT FROM penstock.late_result AS l WHERE l.item_id = k.item_id AND l.outcome = 'done'
    );
