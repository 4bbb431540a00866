-- The scope `approve` is for the second person of a decision. `created_by` is the key that made a key:
-- a key must not approve what the key that made it has asked for. NULL for a key that the command line
-- or the start of a process made.
ALTER TABLE penstock.api_key
    ADD COLUMN created_by text,
    DROP CONSTRAINT scopes_are_known,
    ADD CONSTRAINT scopes_are_known CHECK (scopes <@ ARRAY['produce', 'read', 'approve', 'admin']);
