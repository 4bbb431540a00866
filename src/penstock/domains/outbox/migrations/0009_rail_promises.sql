-- What a rail promises (a valid key, a final "not found") is true of calls under the same row only.
-- Attempts that were claimed before `promises_since` may have called under another one. Of the rows
-- that exist, the last change of any kind is known.
ALTER TABLE penstock.outbox_rail ADD COLUMN promises_since timestamptz NOT NULL DEFAULT now();
UPDATE penstock.outbox_rail SET promises_since = updated_at;
