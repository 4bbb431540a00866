-- Of the next events of a replay, return those that it selects; `item_id` is the latest delivery.
-- The last row has only event_no: how far the scan came.
CREATE OR REPLACE FUNCTION penstock.replay_candidates(
    job penstock.webhook_replay, from_no bigint, scanned_max integer, wanted_max bigint
) RETURNS TABLE (event_no bigint, item_id bigint, is_wanted boolean)
LANGUAGE sql STABLE
SET enable_seqscan = off
AS $$
    WITH scanned AS MATERIALIZED (
        SELECT event.event_no, event.accepted_at, event.tenant, event.type, event.data
        FROM penstock.webhook_event AS event
        WHERE event.event_no >= from_no AND event.event_no < (job).end_event_no
        ORDER BY event.event_no
        LIMIT scanned_max
    ), fitting AS (
        SELECT scanned.event_no, latest.item_id
        FROM scanned
        CROSS JOIN penstock.webhook_subscription AS s
        LEFT JOIN LATERAL (
            SELECT delivery.item_id FROM penstock.webhook_delivery AS delivery
            WHERE delivery.event_no = scanned.event_no
                AND delivery.subscription_no = (job).subscription_no
            ORDER BY delivery.item_id DESC
            LIMIT 1
        ) AS latest ON true
        WHERE s.subscription_no = (job).subscription_no AND scanned.tenant = (job).tenant
            AND scanned.accepted_at >= (job).from_at AND scanned.accepted_at < (job).until_at
            AND ((job).event_types IS NULL
                OR penstock.webhook_patterns(scanned.type) && (job).event_types)
            AND CASE (job).which
                WHEN 'failed' THEN EXISTS (
                    SELECT FROM penstock.dead WHERE dead.id = latest.item_id)
                WHEN 'delivered' THEN penstock.webhook_was_delivered(latest.item_id)
                ELSE (latest.item_id IS NULL OR (job).which = 'all')
                    AND penstock.webhook_patterns(scanned.type) && s.event_types
                    AND (s.filter_path IS NULL
                        OR penstock.webhook_is_wanted(scanned.data, s.filter_path::text))
            END
        ORDER BY scanned.event_no
        LIMIT wanted_max
    )
    SELECT event_no, item_id, true FROM fitting
    UNION ALL
    SELECT coalesce(
        CASE WHEN (SELECT count(*) FROM fitting) = wanted_max THEN (SELECT max(event_no) FROM fitting) END,
        (SELECT max(event_no) FROM scanned)), NULL, false
$$;
