-- A table of a domain may hold rows that belong to items, such as mails. They are deleted together
-- with their item, so that its lane's retention holds for them too.

-- The column with the item's id, in a table whose rows are deleted with their item. NULL: retention
-- does not touch the table.
ALTER TABLE penstock.daily_table ADD COLUMN item_column text COLLATE "C";
