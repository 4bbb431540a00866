-- Retention drops what has ended: what was delivered, and what somebody has cancelled. The audit is
-- kept, so that the two can still be told apart, and old deliveries can be replayed as new ones can.

-- Whether a delivery has arrived, now or before its history was dropped. Of those that were dropped
-- only the audit knows which were cancelled.
CREATE FUNCTION penstock.webhook_was_delivered(item bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
            SELECT FROM penstock.attempt WHERE attempt.item_id = item AND outcome = 'done')
        OR NOT EXISTS (SELECT FROM penstock.item AS kept WHERE kept.id = item)
            AND item IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM penstock.audit
                WHERE subject = item::text AND action = 'item.cancelled')
$$;

CREATE OR REPLACE FUNCTION penstock.webhook_deliveries(of_event bigint)
RETURNS TABLE (
    subscription_id text, item_id bigint, status text, attempts bigint, next_attempt_at timestamptz,
    last_error text, delivered_at timestamptz, changed_at timestamptz
)
LANGUAGE sql STABLE
-- A few rows are looked up one by one, whatever old statistics make the planner think.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    WITH latest AS MATERIALIZED (
        SELECT DISTINCT ON (subscription_no) subscription_no, item_id
        FROM penstock.webhook_delivery
        WHERE event_no = of_event
        ORDER BY subscription_no, item_id DESC
    ), place AS MATERIALIZED (
        SELECT located.* FROM penstock.locate(ARRAY(SELECT item_id FROM latest)) AS located
    )
    SELECT subscription.subscription_id, latest.item_id,
        CASE
            WHEN known.state = 'done' THEN 'delivered'
            WHEN known.state IN ('dead', 'cancelled') THEN 'failed'
            WHEN place.attempts > 0 THEN 'retrying'
            ELSE 'pending'
        END,
        tried.attempts, place.due_at,
        CASE WHEN known.state = 'cancelled' THEN 'cancelled' ELSE coalesce(tried.last_error, place.reason) END,
        tried.delivered_at, tried.changed_at
    FROM latest
    JOIN penstock.webhook_subscription AS subscription USING (subscription_no)
    LEFT JOIN place ON place.id = latest.item_id
    CROSS JOIN LATERAL (
        SELECT coalesce(
            place.state,
            CASE WHEN penstock.webhook_was_delivered(latest.item_id) THEN 'done' ELSE 'cancelled' END)
    ) AS known (state)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE outcome <> 'snooze') AS attempts,
            (array_agg(reason ORDER BY attempt DESC) FILTER (WHERE reason IS NOT NULL))[1] AS last_error,
            max(settled_at) FILTER (WHERE outcome = 'done') AS delivered_at,
            max(settled_at) AS changed_at
        FROM penstock.attempt
        WHERE attempt.item_id = latest.item_id
    ) AS tried
    ORDER BY latest.subscription_no
$$;

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
