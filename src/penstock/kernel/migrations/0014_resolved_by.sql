-- The operator who resolved an item as done: no worker made this attempt.
ALTER TABLE penstock.attempt ADD COLUMN resolved_by text;
