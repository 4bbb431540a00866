-- A lane of a domain has its owner, and guards: what others may not do with the lane, each with what
-- to use instead. Names that begin with `penstock.` are for the lanes of built-in domains, so that no
-- lane of a user can have the name of a later one.
ALTER TABLE penstock.lane
    ADD COLUMN owner text,
    ADD COLUMN guards jsonb NOT NULL DEFAULT '{}',
    ADD CONSTRAINT guards_have_an_owner
        CHECK (jsonb_typeof(guards) = 'object' AND (owner IS NOT NULL OR guards = '{}')),
    ADD CONSTRAINT reserved_name_has_an_owner CHECK (owner IS NOT NULL OR name NOT LIKE 'penstock.%');
