-- When a held or dead item is due, if an operator took it out of ready before it was tried: released
-- or retried before that instant, it still waits for it. NULL for items that an attempt has ended.
ALTER TABLE penstock.held ADD COLUMN due_at timestamptz;
ALTER TABLE penstock.dead ADD COLUMN due_at timestamptz;
