-- What was tried, under the table name and the columns of the outbox that this replaces. A claim shows
-- as a DISPATCHING row at once, and its ending as another row; a claim that ended without a call and
-- without an archived ending shows no more. Endings are rows of
-- outbox_attempt; DISPATCHING rows are derived from them, from the leases, and from attempts whose worker
-- died and that are not decided yet.
CREATE OR REPLACE VIEW penstock.payment_outbox_attempts AS
SELECT tried.attempt_id, tried.outbox_id, instruction.instruction_id, instruction.participant_id,
    instruction.sequence_id, instruction.idempotency_key, instruction.rail_type, instruction.payload,
    tried.attempt_no, tried.state, tried.claimed_at, tried.completed_at, tried.rail_reference,
    tried.rail_code, tried.error_code, tried.error_message, tried.latency_ms, tried.created_at
FROM (
    SELECT attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, rail_reference, rail_code,
        error_code, error_message, latency_ms, created_at
    FROM penstock.outbox_attempt
    UNION ALL
    SELECT penstock.dispatching_id(outbox_id, token), outbox_id, attempt_no, 'DISPATCHING', claimed_at,
        NULL, NULL, NULL, NULL, NULL, NULL, claimed_at
    FROM penstock.outbox_attempt
    WHERE token IS NOT NULL
    UNION ALL
    SELECT penstock.dispatching_id(i.outbox_id, lease.token), i.outbox_id, leased.attempt + 1,
        'DISPATCHING', lease.claimed_at, NULL, NULL, NULL, NULL, NULL, NULL, lease.claimed_at
    FROM penstock.lease
    CROSS JOIN LATERAL unnest(lease.item_ids, lease.attempts) AS leased (id, attempt)
    JOIN penstock.outbox_instruction AS i ON i.item_id = leased.id
    WHERE lease.lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
    UNION ALL
    SELECT penstock.dispatching_id(i.outbox_id, lost.token), i.outbox_id, lost.attempt, 'DISPATCHING',
        lost.claimed_at, NULL, NULL, NULL, NULL, NULL, NULL, lost.claimed_at
    FROM penstock.held
    JOIN penstock.attempt AS lost
        ON lost.item_id = held.id AND lost.attempt = held.attempt AND lost.outcome = 'lost'
    JOIN penstock.outbox_instruction AS i ON i.item_id = held.id
    WHERE held.lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
        AND NOT EXISTS (
            SELECT FROM penstock.outbox_attempt AS ending
            WHERE ending.outbox_id = i.outbox_id AND ending.token = lost.token)
) AS tried
JOIN penstock.outbox_instruction AS instruction ON instruction.outbox_id = tried.outbox_id;
