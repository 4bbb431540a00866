-- Return where the kernel has the item of a mail, with the attempts that it counts: one row.
CREATE OR REPLACE FUNCTION penstock.mail_place(of_mail bigint)
RETURNS TABLE (
    state text, due_at timestamptz, claimed_at timestamptz, ended_at timestamptz, attempt integer,
    forgiven integer, reason text
)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    SELECT 'ready', ready.due_at, NULL::timestamptz, NULL::timestamptz, ready.attempt, ready.forgiven, NULL
    FROM penstock.item
    CROSS JOIN LATERAL (
        SELECT DISTINCT due_at FROM penstock.due_instant WHERE item_id = item.id
    ) AS instant
    CROSS JOIN LATERAL (
        SELECT due_at, attempt, forgiven FROM penstock.ready
        WHERE lane_id = item.lane_id AND due_at = instant.due_at AND id = item.id
        LIMIT 1
    ) AS ready
    WHERE item.id = of_mail
    UNION ALL
    SELECT 'leased', NULL, lease.claimed_at, NULL, leased.attempt, leased.forgiven, NULL
    FROM penstock.lease
    CROSS JOIN LATERAL unnest(lease.item_ids, lease.attempts, lease.forgiven)
        AS leased (id, attempt, forgiven)
    WHERE leased.id = of_mail
    UNION ALL
    SELECT 'held', NULL, NULL, held_at, attempt, forgiven, reason
    FROM penstock.held WHERE id = of_mail
    UNION ALL
    SELECT 'dead', NULL, NULL, died_at, attempt, forgiven, reason
    FROM penstock.dead WHERE id = of_mail
    UNION ALL
    SELECT 'cancelled', NULL, NULL, cancelled_at, NULL, NULL, NULL
    FROM penstock.cancelled WHERE id = of_mail
    UNION ALL
    SELECT 'done', NULL, NULL, NULL, NULL, NULL, NULL
    FROM penstock.attempt WHERE item_id = of_mail AND outcome = 'done'
$$;
