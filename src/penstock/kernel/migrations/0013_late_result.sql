-- What a worker that came back late has found out, such as the reference of a bank: often it answers
-- what happened to an item that was held as lost.
ALTER TABLE penstock.late_result ADD COLUMN result jsonb;
