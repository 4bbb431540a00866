-- Instructions that may have been paid and are held for that reason: their worker died, it had no clear
-- answer, or the rail reports something about a call in doubt while the next one waits. Those that an
-- operator or a control holds are not among them: their reasons begin otherwise.
CREATE OR REPLACE VIEW penstock.outbox_unknown AS
SELECT held.id, held.held_at, held.attempt, held.reason, a.outcome, a.token, a.claimed_at, a.settled_at,
    i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, i.rail_type, i.amount, i.currency
FROM penstock.held
JOIN penstock.attempt AS a ON a.item_id = held.id AND a.attempt = held.attempt
JOIN penstock.outbox_instruction AS i ON i.item_id = held.id
WHERE held.lane_id = (SELECT lane_id FROM penstock.lane WHERE name = 'penstock.outbox')
    AND ((a.outcome = 'lost' AND held.reason = 'lost') OR held.reason LIKE 'unknown: %');
