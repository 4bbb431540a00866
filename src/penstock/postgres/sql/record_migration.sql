-- Written in the migration's own transaction, so that the migration table cannot disagree with the
-- schema.
INSERT INTO penstock.migration (owner, number, name, checksum)
VALUES ($1, $2, $3, $4);
