-- One provider receives for many domains, and limits them together. Which domains belong to a group,
-- the operator says: no DNS query decides about a limit.
CREATE TABLE penstock.mail_domain_group (
    domain text COLLATE "C" PRIMARY KEY,
    group_name text COLLATE "C" NOT NULL,
    CONSTRAINT domain_is_normal CHECK (domain ~ '^[a-z0-9.-]{1,253}$'),
    CONSTRAINT name_is_a_slug CHECK (group_name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$')
);

ALTER TABLE penstock.mail_limit DROP CONSTRAINT scope_is_known;
ALTER TABLE penstock.mail_limit ADD CONSTRAINT scope_is_known
    CHECK (scope IN ('relay', 'sender', 'domain', 'group'));
