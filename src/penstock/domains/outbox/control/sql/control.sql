-- What holds each of a batch of instructions back, and count those that pass in the day's sum of their
-- participant. A batch has one instruction of a participant, the head. $7: whether the rail is open.
-- The sum is exact over all workers: the row is locked before it is compared. It is counted on the day
-- on which an instruction is first about to be sent, once, also if it is tried again or fails.
WITH asked AS MATERIALIZED (
    SELECT *
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::numeric[], $6::text[], $7::boolean[])
        WITH ORDINALITY
        AS a (outbox_id, item_id, participant_id, rail_type, amount, currency, is_open, place)
), found AS MATERIALIZED (
    SELECT asked.*, stop.scope AS stopped_scope, stop.name AS stopped_name,
        suspension.participant_id IS NOT NULL AS is_suspended,
        approval.decision, approval.key_id AS decided_by, approval.reason AS decision_reason,
        rule.amount_max, rule.approval_above, rule.day_amount_max,
        charge.outbox_id IS NOT NULL AS is_charged,
        -- Looked up only where it matters: what was sent once must not fail for its amount.
        CASE WHEN asked.amount > rule.amount_max THEN
            (SELECT was_sent FROM penstock.outbox_past_calls(asked.outbox_id, asked.item_id))
            ELSE false END AS is_tried
    FROM asked
    CROSS JOIN LATERAL penstock.find_outbox_limit(
        asked.participant_id, asked.rail_type, asked.currency) AS rule
    LEFT JOIN LATERAL (
        SELECT scope, name FROM penstock.outbox_switch
        WHERE scope = 'all' OR (scope = 'rail' AND name = asked.rail_type)
            OR (scope = 'participant' AND name = asked.participant_id)
        LIMIT 1
    ) AS stop ON true
    -- Looked up one by one: in a join the planner may read a whole table, and these grow.
    LEFT JOIN LATERAL (
        SELECT participant_id FROM penstock.outbox_suspension
        WHERE outbox_suspension.participant_id = asked.participant_id
        LIMIT 1
    ) AS suspension ON true
    LEFT JOIN LATERAL (
        SELECT decision, key_id, reason FROM penstock.outbox_approval
        WHERE outbox_approval.outbox_id = asked.outbox_id
        LIMIT 1
    ) AS approval ON true
    LEFT JOIN LATERAL (
        SELECT outbox_id FROM penstock.outbox_charge
        WHERE outbox_charge.outbox_id = asked.outbox_id AND rule.day_amount_max IS NOT NULL
        LIMIT 1
    ) AS charge ON true
), chargeable AS MATERIALIZED (
    SELECT outbox_id, participant_id, currency, amount,
        CASE WHEN decision = 'approved' THEN 'Infinity' ELSE day_amount_max END AS sum_max
    FROM found
    WHERE day_amount_max IS NOT NULL AND NOT is_charged AND is_open
        AND stopped_scope IS NULL AND NOT is_suspended AND decision IS DISTINCT FROM 'rejected'
        AND amount <= coalesce(amount_max, 'Infinity')
        AND (amount <= coalesce(approval_above, 'Infinity') OR decision = 'approved')
), total AS (
    -- In one order, so that two workers cannot wait for each other.
    INSERT INTO penstock.outbox_day_total AS known (participant_id, currency, day, amount, amount_max)
    SELECT participant_id, currency, ($8::timestamptz AT TIME ZONE 'UTC')::date, amount, sum_max
    FROM chargeable
    WHERE amount <= sum_max
    ORDER BY participant_id, currency
    ON CONFLICT (participant_id, currency, day) DO UPDATE
    SET amount = known.amount + excluded.amount, amount_max = excluded.amount_max
    WHERE known.amount + excluded.amount <= excluded.amount_max
    RETURNING participant_id, currency
), charged AS (
    -- IS TRUE: otherwise it becomes a join, and as a nested loop that compares all with all.
    INSERT INTO penstock.outbox_charge (outbox_id, day)
    SELECT outbox_id, ($8::timestamptz AT TIME ZONE 'UTC')::date
    FROM chargeable
    WHERE ((participant_id, currency) IN (SELECT participant_id, currency FROM total)) IS TRUE
    ON CONFLICT DO NOTHING
)
SELECT stopped_scope, stopped_name, is_suspended, decision, decided_by, decision_reason,
    amount_max, approval_above, day_amount_max, is_tried,
    day_amount_max IS NULL OR is_charged
        OR (participant_id, currency) IN (SELECT participant_id, currency FROM total) AS is_within_day
FROM found
ORDER BY place;
