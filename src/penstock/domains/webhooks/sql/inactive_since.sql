-- Since when a subscription has not been active, by its audit; NULL if it is active. It may have
-- been paused again while it was paused.
SELECT min(audited_at)
FROM penstock.audit
WHERE subject = $1 AND action = 'subscription.changed'
    AND after ->> 'state' IN ('paused', 'disabled')
    AND audit_id > coalesce((
        SELECT max(audit_id)
        FROM penstock.audit
        WHERE subject = $1 AND action = 'subscription.changed' AND after ->> 'state' = 'active'), 0);
