-- Ask whether a refusal or a return is that of a call that was refused before another one was accepted:
-- its reference is known, and is not that of the call that was accepted.
SELECT EXISTS (
    SELECT FROM penstock.outbox_attempt AS refused
    WHERE refused.outbox_id = $1 AND refused.rail_reference = $2
        AND refused.state IN ('FAILED', 'RETRYABLE')
) AND EXISTS (
    SELECT FROM penstock.outbox_attempt AS accepted
    WHERE accepted.outbox_id = $1 AND accepted.state = 'DISPATCHED'
) AND NOT EXISTS (
    SELECT FROM penstock.outbox_attempt AS accepted
    WHERE accepted.outbox_id = $1 AND accepted.state = 'DISPATCHED' AND accepted.rail_reference = $2
);
