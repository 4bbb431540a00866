-- Doubts are asked about before settlements, of which a rail that settles in days has as many as it has
-- open payments. `releases` counts how often an instruction was sent again and came to doubt again: only
-- that delays the next question. `looks` counts the questions about the present doubt.
ALTER TABLE penstock.outbox_lookup ADD COLUMN releases integer NOT NULL DEFAULT 0;
CREATE INDEX outbox_lookup_due_by_purpose ON penstock.outbox_lookup (rail_type, purpose, due_at);
DROP INDEX penstock.outbox_lookup_due_of_rail;
-- What was left to a person, which is little: among all lookups it is looked for in every cycle, and
-- counted for a metric.
CREATE INDEX outbox_lookup_left ON penstock.outbox_lookup (purpose, item_id) WHERE left_at IS NOT NULL;
