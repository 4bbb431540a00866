-- A mail that must be sent, such as a notice that the law requires, may override the suppression list.
ALTER TABLE penstock.mail ADD COLUMN overrides_suppression boolean NOT NULL DEFAULT false;
