-- Return since when the oldest item of a lane is due that is snoozed again and again, such as
-- behind a kill switch: the instant with which it was accepted, as each snooze moves its due
-- instant. One that was snoozed for more than a minute has a new due instant instead, such as the
-- opening of a market. Up to `heads_max` items are looked at, those that are due next.
CREATE OR REPLACE FUNCTION penstock.oldest_snoozed(in_lane integer, heads_max integer)
RETURNS timestamptz
LANGUAGE sql STABLE
-- Items are looked up one by one; with stale statistics the planner may scan tables instead.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    WITH head AS MATERIALIZED (
        SELECT id, attempt, forgiven FROM penstock.ready
        WHERE lane_id = in_lane
        ORDER BY due_at
        LIMIT heads_max
    )
    SELECT min(item.due_at)
    FROM head
    JOIN penstock.attempt AS last ON last.item_id = head.id AND last.attempt = head.attempt
        AND last.outcome = 'snooze' AND last.retry_at - last.settled_at <= interval '1 minute'
    JOIN penstock.item ON item.id = head.id
    WHERE head.forgiven > 0
$$;
